"""Writes docs/coverage.md: each ability of docs/coverage.toml, the tests that prove it and the examples that show it.

python -m tests.support.coverage
"""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "coverage.md"
_LABEL = re.compile(r"\b[PDJF]\d{1,2}\b")
_HEAD = """# Coverage

<!-- Written by `make coverage` from docs/coverage.toml and from the docstrings of tests and examples. -->

reactor replaces four kinds of systems, which teams used to write themselves. This page lists what each of them can do,
where it is documented here, the tests that prove it, and the [examples](../examples/README.md) that show it.
"""


class Row(NamedTuple):
    label: str
    ability: str
    document: str


class System(NamedTuple):
    name: str
    about: str
    rows: Sequence[Row]


class Place(NamedTuple):
    """A test, or a part of an example, that names a label in its docstring."""

    path: str
    name: str


def systems() -> list[System]:
    listed = tomllib.loads((ROOT / "docs" / "coverage.toml").read_text(encoding="utf-8"))["system"]
    return [System(each["name"], each["about"], [Row(*row) for row in each["rows"]]) for each in listed]


def tests() -> Mapping[str, Sequence[Place]]:
    """By label."""
    return _by_label(place for path in _files("tests") for place in _docstrings(path) if "test_" in place[1].name)


def examples() -> Mapping[str, Sequence[Place]]:
    return _by_label(place for path in _files("examples") for place in _docstrings(path))


def page() -> str:
    proven, shown = tests(), examples()
    parts = [_HEAD]
    for system in systems():
        lines = [f"\n## {system.name}\n", f"{system.about}\n", "| | ability | documented in | tests | examples |"]
        lines.append("| --- | --- | --- | --- | --- |")
        for row in system.rows:
            document = f"[{_title(row.document)}]({row.document})"
            cells = (row.label, row.ability, document, _links(proven[row.label]), _links(shown[row.label]))
            lines.append(f"| {' | '.join(cells)} |")
        parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def _title(document: str) -> str:
    """The name of the page, and of the section if there is one."""
    path, _, anchor = document.partition("#")
    name = path.removeprefix("../").removesuffix("README.md").removesuffix(".md").strip("/")
    return f"{name}: {anchor.replace('-', ' ')}" if anchor else name


def _links(places: Sequence[Place]) -> str:
    return "<br>".join(f"[{_words(place)}](../{place.path})" for place in places)


def _words(place: Place) -> str:
    return place.name.removeprefix("test_").replace("_", " ")


def _by_label(found: Iterator[tuple[str, Place]]) -> defaultdict[str, list[Place]]:
    places: defaultdict[str, list[Place]] = defaultdict(list)
    for docstring, place in found:
        for label in dict.fromkeys(_LABEL.findall(docstring)):
            places[label].append(place)
    return places


def _files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _docstrings(path: Path) -> Iterator[tuple[str, Place]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = str(path.relative_to(ROOT))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (
            text := ast.get_docstring(node)
        ):
            yield text, Place(name, node.name)
        elif isinstance(node, ast.Module) and (text := ast.get_docstring(node)):
            yield text, Place(name, path.stem)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
