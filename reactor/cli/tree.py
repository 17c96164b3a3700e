"""A pipeline as a tree on the terminal: what ran, what runs, what waits, as far as the screen reaches."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from reactor.cli.output import STATE_COLOURS, harmless, percent
from reactor.cli.pipeline_state import Picture, Row, by_state
from reactor.error_text import first_line
from reactor.feed.subscriptions import Sign

SHAPES = {
    "waiting": "◌",
    "pending": "○",
    "running": "◐",
    "completed": "●",
    "partial": "◒",
    "failed": "✗",
    "cancelled": "⊘",
    "skipped": "·",
}
STALE = "The database does not answer, and what is shown may be old"
_ALIKE = 6
"""So many jobs of one type side by side are told in one line, but for those that run or failed."""
_BAR_WIDTH = 20
_DEEPEST = 12


def draw(picture: Picture, height: int) -> Group:
    """At most `height` lines."""
    pipeline = picture.pipeline
    title = Table.grid(padding=(0, 2))
    for _ in range(5):
        title.add_column(no_wrap=True, overflow="ellipsis")
    title.add_row(
        _state(pipeline["state"]),
        Text(pipeline["pipeline_id"], style="bold"),
        ProgressBar(total=1, completed=pipeline["progress"], width=_BAR_WIDTH),
        Text(percent(pipeline["progress"])),
        Text(by_state(list(picture.jobs.values()))),
    )
    lines = list(_lines(picture, None, 0))
    shown = _fitting(lines, max(1, height - 2))
    table = Table.grid(padding=(0, 2))
    for line in shown:
        table.add_row(*line[1:])
    left = len(lines) - len(shown)
    below = Text(f"… and {left:,} more lines" if left else "", style="dim")
    return Group(title, table, Text(f"{STALE}.", style="yellow") if picture.sign is Sign.STALE else below)


_Line = tuple[int, Text, "ProgressBar | Text", Text]


def _lines(picture: Picture, above: int | None, depth: int) -> Iterator[_Line]:
    """Each with how much it matters: 0 most."""
    children = sorted(picture.below(above), key=lambda job: (job["job_type"] or "", job["id"]))
    for job_type, alike in groupby(children, key=lambda job: job["job_type"]):
        jobs = list(alike)
        folded = [job for job in jobs if not _matters(picture, job)] if len(jobs) > _ALIKE else []
        if folded:
            name = f"{len(folded):,} × {harmless(job_type or 'no type')}"  # noqa: RUF001
            yield 1, _indented(depth, Text(name, style="dim")), Text(), Text(by_state(folded), style="dim")
        hidden = {job["id"] for job in folded}
        for job in jobs:
            if job["id"] not in hidden:
                yield _job_line(job, depth)
                yield from _step_lines(picture.steps(job["id"]), depth + 1)
                yield from _lines(picture, job["id"], min(depth + 1, _DEEPEST))


def _matters(picture: Picture, job: Row) -> bool:
    return job["state"] in ("running", "failed", "partial") or bool(picture.below(job["id"]))


def _job_line(job: Row, depth: int) -> _Line:
    name = _state(job["state"])
    name.append(f" {harmless(job['job_type'] or 'no type')}").append(f" {job['id']}", style="dim")
    if job["scope"]:
        name.append(f" {harmless(job['scope'])}", style="dim")
    rank = 0 if job["state"] in ("running", "failed", "partial") else 2
    return rank, _indented(depth, name), _bar(job), Text(_note(job), style=STATE_COLOURS.get(job["state"], ""))


def _bar(job: Row) -> "ProgressBar | Text":
    if job["progress"] is None or job["state"] not in ("running", "pending"):
        return Text()
    return ProgressBar(total=1, completed=job["progress"], width=_BAR_WIDTH)


def _note(job: Row) -> str:
    if job["state"] == "running":
        tries = f", attempt {job['attempts']}" if job["attempts"] > 1 else ""
        return f"on {harmless(job['locked_by'])}{tries}  {harmless(job['status_message'] or '')}".rstrip()
    if job["state"] == "waiting":
        return f"for {job['waiting_on']:,} job{'' if job['waiting_on'] == 1 else 's'}"
    return harmless(first_line(job["error"] or job["status_message"] or ""))


def _step_lines(steps: Sequence[Row], depth: int) -> Iterator[_Line]:
    """Those that run or failed; of the others, how many there are."""
    live = [step for step in steps if step["state"] in ("running", "failed")]
    if steps:
        done = sum(step["state"] in ("completed", "skipped") for step in steps)
        bar = ProgressBar(total=len(steps), completed=done, width=_BAR_WIDTH)
        yield 1, _indented(depth, Text(f"{done} of {len(steps)} steps", style="dim")), bar, Text()
    for step in live:
        name = _state(step["state"]).append(f" {harmless(step['name'])}")
        yield 1, _indented(depth, name), Text(), Text(harmless(first_line(step["error"] or "")), style="red")


def _fitting(lines: list[_Line], most: int) -> list[_Line]:
    """In their order; what matters least is left out first."""
    if len(lines) <= most:
        return lines
    chosen = sorted(sorted(range(len(lines)), key=lambda place: lines[place][0])[: most - 1])
    return [lines[place] for place in chosen]


def _indented(depth: int, text: Text) -> Text:
    return Text("  " * depth, no_wrap=True, overflow="ellipsis").append_text(text)


def _state(state: str) -> Text:
    return Text(SHAPES.get(state, "?"), style=STATE_COLOURS.get(state, ""))
