"""Writes the results of a run of the suite into the table of docs/clients/README.md.

python -m tests.clients.table build/clients/results.xml
"""

import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from tests.clients.registry import CLIENTS, Client

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "clients" / "README.md"
BEGIN, END = "<!-- results: written by `make clients` -->\n", "<!-- end of the results -->\n"
ROUTES = ("direct", "pgbouncer")
# The columns of the table. What belongs to no scenario is part of every run.
GROUPS = {
    "insert": ("insert", "defaults"),
    "batch": ("batch",),
    "all columns": ("bind", "every_column"),
    "DAG": ("dag",),
    "`submit`": ("submit",),
    "conflicts": ("conflict", "ignore_conflict", "rollback"),
    "reading": ("read_own", "foreign"),
    "last id": ("last_id",),
}


class Result(NamedTuple):
    client: str
    route: str
    version: str
    scenario: str
    outcome: str
    """passed, failed, or why it was skipped."""


def read(file: Path) -> list[Result]:
    results = []
    for case in ElementTree.parse(file).iter("testcase"):  # noqa: S314 (our own file)
        facts = {item.attrib["name"]: item.attrib["value"] for item in case.iter("property")}
        # Without a version it did not run: its tools are not installed here.
        if "version" in facts:
            skipped = case.find("skipped")
            failed = case.find("failure") is not None or case.find("error") is not None
            outcome = skipped.attrib["message"] if skipped is not None else "failed" if failed else "passed"
            results.append(
                Result(facts["client"], facts["route"], facts["version"], facts.get("scenario", ""), outcome)
            )
    return results


class Notes:
    """Footnotes, numbered as they are first used."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, text: str) -> str:
        if text not in self.texts:
            self.texts.append(text)
        return f"({self.texts.index(text) + 1})"


def cell(results: list[Result], notes: Notes) -> str:
    if not results:
        return ""
    if any(result.outcome == "failed" for result in results):
        return "**fails**"
    reasons = {f"`{result.scenario}`: {result.outcome}" for result in results if result.outcome != "passed"}
    marks = " ".join(sorted(map(notes.add, sorted(reasons))))
    passed = any(result.outcome == "passed" for result in results)
    return f"{'yes' if passed else '-'} {marks}".strip()


def row(client: Client, results: list[Result], notes: Notes) -> list[str]:
    if not results:
        return [client.language, client.name, "not run"]
    by_group = [[one for one in results if one.scenario in scenarios] for scenarios in GROUPS.values()]
    by_route = [[one.outcome for one in results if one.route == route] for route in ROUTES]
    routes = ["**fails**" if "failed" in outcomes else "yes" if outcomes else "not run" for outcomes in by_route]
    return [client.language, client.name, results[0].version, *(cell(group, notes) for group in by_group), *routes]


def table(results: list[Result]) -> str:
    by_client: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_client[result.client].append(result)
    notes = Notes()
    head = ["language", "client", "version", *GROUPS, *ROUTES]
    rows = [head, ["---"] * len(head), *(row(client, by_client[client.name], notes) for client in CLIENTS)]
    lines = [f"| {' | '.join(cells + [''] * (len(head) - len(cells)))} |\n" for cells in rows]
    return "".join([*lines, "\n", *(f"{number}. {text}\n" for number, text in enumerate(notes.texts, start=1))])


def main() -> None:
    results = read(Path(sys.argv[1]))
    page = PAGE.read_text()
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: f"{BEGIN}\n{table(results)}\n{END}", page))
    print(f"{PAGE.relative_to(Path.cwd())}: {len({result.client for result in results})} clients")


if __name__ == "__main__":
    main()
