"""What pip installs works outside the checkout."""

import zipfile
from pathlib import Path

from tests.support.package import ROOT, install, run


def test_the_wheel_carries_sql_migrations_and_page(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    for folder, target in [
        ("sql", "reactor/sql"),
        ("migrations", "reactor/migrations"),
        ("http/reactor_http", "reactor_http"),
    ]:
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
        assert files
        assert {f"{target}/{path.relative_to(ROOT / folder).as_posix()}" for path in files} <= inside
    assert {"reactor/py.typed", "reactor_http/py.typed"} <= inside
    assert not any(name.startswith(("http/", "tests/")) for name in inside)


def test_an_installed_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    python = install(wheel, home)
    assert Path(run(python, "-c", "import reactor; print(reactor.__file__)", cwd=tmp_path).strip()).is_relative_to(home)
    assert "create schema reactor" in run(python, "-m", "reactor", "migrate", "--sql", cwd=tmp_path)
    assert run(python, "-c", "from reactor_http.app import create_app; create_app('')", cwd=tmp_path) == ""
