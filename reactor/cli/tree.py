"""Draws a pipeline as a tree of jobs and steps that fits the terminal."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from reactor.cli.output import STATE_COLOURS, percent, printable
from reactor.cli.pipeline_state import PipelineState, Row, count_by_state
from reactor.error_text import first_line
from reactor.feed.subscriptions import Sign

SYMBOLS = {
    "waiting": "◌",
    "pending": "○",
    "running": "◐",
    "completed": "●",
    "partial": "◒",
    "failed": "✗",
    "cancelled": "⊘",
    "skipped": "·",
}
STALE = "The database does not respond; the state shown may be outdated"
_FOLD_ABOVE = 6
"""More sibling jobs of one type than this share one line, except running and failed ones."""
_BAR_WIDTH = 20
_MAX_DEPTH = 12


def draw(pipeline_state: PipelineState, height: int) -> Group:
    """The pipeline in at most `height` lines."""
    pipeline = pipeline_state.pipeline
    title = Table.grid(padding=(0, 2))
    for _ in range(5):
        title.add_column(no_wrap=True, overflow="ellipsis")
    title.add_row(
        _state(pipeline["state"]),
        Text(pipeline["pipeline_id"], style="bold"),
        ProgressBar(total=1, completed=pipeline["progress"], width=_BAR_WIDTH),
        Text(percent(pipeline["progress"])),
        Text(count_by_state(list(pipeline_state.jobs.values()))),
    )
    lines = list(_lines(pipeline_state, None, 0))
    shown = _most_important(lines, max(1, height - 2))
    table = Table.grid(padding=(0, 2))
    for line in shown:
        table.add_row(*line[1:])
    hidden = len(lines) - len(shown)
    footer = Text(f"… and {hidden:,} more lines" if hidden else "", style="dim")
    return Group(title, table, Text(f"{STALE}.", style="yellow") if pipeline_state.sign is Sign.STALE else footer)


_Line = tuple[int, Text, "ProgressBar | Text", Text]


def _lines(pipeline_state: PipelineState, parent: int | None, depth: int) -> Iterator[_Line]:
    """Lines with their rank: 0 is the most important."""
    children = sorted(pipeline_state.children(parent), key=lambda job: (job["job_type"] or "", job["id"]))
    for job_type, siblings in groupby(children, key=lambda job: job["job_type"]):
        jobs = list(siblings)
        folded = [job for job in jobs if not _is_important(pipeline_state, job)] if len(jobs) > _FOLD_ABOVE else []
        if folded:
            name = f"{len(folded):,} × {printable(job_type or 'no type')}"  # noqa: RUF001
            yield 1, _indented(depth, Text(name, style="dim")), Text(), Text(count_by_state(folded), style="dim")
        folded_ids = {job["id"] for job in folded}
        for job in jobs:
            if job["id"] not in folded_ids:
                yield _job_line(job, depth)
                yield from _step_lines(pipeline_state.steps(job["id"]), depth + 1)
                yield from _lines(pipeline_state, job["id"], min(depth + 1, _MAX_DEPTH))


def _is_important(pipeline_state: PipelineState, job: Row) -> bool:
    return job["state"] in ("running", "failed", "partial") or bool(pipeline_state.children(job["id"]))


def _job_line(job: Row, depth: int) -> _Line:
    name = _state(job["state"])
    name.append(f" {printable(job['job_type'] or 'no type')}").append(f" {job['id']}", style="dim")
    if job["scope"]:
        name.append(f" {printable(job['scope'])}", style="dim")
    rank = 0 if job["state"] in ("running", "failed", "partial") else 2
    return rank, _indented(depth, name), _bar(job), Text(_message(job), style=STATE_COLOURS.get(job["state"], ""))


def _bar(job: Row) -> "ProgressBar | Text":
    if job["progress"] is None or job["state"] not in ("running", "pending"):
        return Text()
    return ProgressBar(total=1, completed=job["progress"], width=_BAR_WIDTH)


def _message(job: Row) -> str:
    if job["state"] == "running":
        attempt = f", attempt {job['attempts']}" if job["attempts"] > 1 else ""
        return f"on {printable(job['locked_by'])}{attempt}  {printable(job['status_message'] or '')}".rstrip()
    if job["state"] == "waiting":
        return f"waiting for {job['waiting_on']:,} job{'' if job['waiting_on'] == 1 else 's'}"
    return printable(first_line(job["error"] or job["status_message"] or ""))


def _step_lines(steps: Sequence[Row], depth: int) -> Iterator[_Line]:
    """A line with the number of completed steps, then running and failed steps."""
    shown = [step for step in steps if step["state"] in ("running", "failed") or step["run_after"]]
    if steps:
        done = sum(step["state"] in ("completed", "skipped") for step in steps)
        bar = ProgressBar(total=len(steps), completed=done, width=_BAR_WIDTH)
        yield 1, _indented(depth, Text(f"{done} of {len(steps)} steps", style="dim")), bar, Text()
    for step in shown:
        name = _state(step["state"]).append(f" {printable(step['name'])}")
        if step["max_attempts"] and step["max_attempts"] > 1 and step["attempts"]:
            number = step["attempts"] if step["state"] == "failed" else step["attempts"] + 1
            name.append(f" run {number} of {step['max_attempts']}", style="dim")
        yield 1, _indented(depth, name), Text(), Text(printable(first_line(step["error"] or "")), style="red")


def _most_important(lines: list[_Line], count: int) -> list[_Line]:
    """The lines of highest rank, in their original order."""
    if len(lines) <= count:
        return lines
    chosen = sorted(sorted(range(len(lines)), key=lambda index: lines[index][0])[: count - 1])
    return [lines[index] for index in chosen]


def _indented(depth: int, text: Text) -> Text:
    return Text("  " * depth, no_wrap=True, overflow="ellipsis").append_text(text)


def _state(state: str) -> Text:
    return Text(SYMBOLS.get(state, "?"), style=STATE_COLOURS.get(state, ""))
