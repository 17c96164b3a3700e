"""docs/coverage.md lists every ability with the tests that prove it, and can't go stale."""

import re

import pytest

from tests.support import coverage

NUMBERS = {"P": 10, "D": 17, "J": 18, "F": 13}
PROOFS = coverage.tests()
ROWS = [row for system in coverage.systems() for row in system.rows]


def test_every_ability_is_listed_once() -> None:
    labels = [f"{letter}{number}" for letter, count in NUMBERS.items() for number in range(1, count + 1)]
    assert [row.label for row in ROWS] == labels


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_every_ability_is_proven_by_a_test(row: coverage.Row) -> None:
    assert PROOFS[row.label]


def test_tests_name_no_unknown_ability() -> None:
    assert PROOFS.keys() <= {row.label for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_every_ability_is_documented(row: coverage.Row) -> None:
    path, _, anchor = row.document.partition("#")
    text = (coverage.PAGE.parent / path).read_text()
    headings = [re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in text.splitlines()]
    assert not anchor or anchor in headings


def test_the_page_is_current() -> None:
    assert coverage.PAGE.read_text() == coverage.page(), "run `make coverage`"
