"""`reactor doctor`: diagnoses the setup and suggests fixes."""

import dataclasses
import json
import os
import sys

import anyio
import click

from reactor.doctor import Finding, Level, diagnose
from reactor.embedded.locate import locate
from reactor.settings import read_settings

_LABELS = {
    Level.OK: ("ok     ", "green"),
    Level.WARNING: ("warning", "yellow"),
    Level.PROBLEM: ("problem", "red"),
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON array.")
def doctor(as_json: bool) -> None:
    """Diagnose the setup and suggest fixes.

    Checks the settings, the server and its version, the schema, privileges, the clock, poolers, notifications,
    transactions that hold back vacuum, and ready jobs that no live pod has a handler for. Exits with 1 if there is a
    problem, and with 0 if there are only warnings.
    """
    findings = anyio.run(_diagnose, as_json)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    sys.exit(any(finding.level is Level.PROBLEM for finding in findings))


async def _diagnose(quiet: bool) -> list[Finding]:
    findings = []
    async with locate(read_settings()) as location:
        async for finding in diagnose(location, os.environ):
            findings.append(finding)
            if not quiet:
                _print(finding)
    return findings


def _print(finding: Finding) -> None:
    label, colour = _LABELS[finding.level]
    click.echo(f"{click.style(label, fg=colour)}  {finding.check:<13}  {finding.message}")
    if finding.remedy:
        click.echo(f"{'':24}{finding.remedy}")
