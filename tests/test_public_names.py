"""`import reactor` offers its public names, and nothing else."""

import subprocess
import sys

import pytest

import reactor


def test_dir_lists_the_public_names_only() -> None:
    assert [name for name in dir(reactor) if not name.startswith("__")] == reactor.__all__
    assert {"__version__", "__doc__", "__file__"} <= set(dir(reactor))


def test_the_public_names_are_sorted() -> None:
    assert reactor.__all__ == sorted(reactor.__all__)


def test_a_star_import_gives_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from reactor import *", names)  # noqa: S102 (a star import is allowed at the level of a module only)
    assert names.keys() - {"__builtins__"} == set(reactor.__all__)


@pytest.mark.parametrize("name", reactor.__all__)
def test_a_public_name_has_a_docstring(name: str) -> None:
    """One of its own: not its base's, and not the signature that Python gives a dataclass or named tuple."""
    public = getattr(reactor, name)
    documentation = vars(public).get("__doc__") if isinstance(public, type) else public.__doc__
    assert documentation, f"reactor.{name} has no docstring"
    assert not documentation.startswith(f"{name}(")


def test_modules_that_are_not_listed_can_be_imported() -> None:
    script = "from reactor import embedded, errors, look, operate, testing; import reactor.settings; reactor.settings"
    subprocess.run([sys.executable, "-c", script], check=True)
