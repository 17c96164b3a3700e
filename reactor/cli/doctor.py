"""`reactor doctor`."""

import dataclasses
import json
import os
import sys

import anyio
import click

from reactor.doctor import Finding, Level, examine
from reactor.embedded.locate import locate
from reactor.settings import read_settings

_SIGNS = {
    Level.OK: ("ok     ", "green"),
    Level.WARNING: ("warning", "yellow"),
    Level.PROBLEM: ("problem", "red"),
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as a JSON array.")
def doctor(as_json: bool) -> None:
    """Look for what would keep reactor from working here, and say how to put it right.

    Checks: settings, server and version, schema, privileges, clock, a pooler in between, notifications,
    and whether something holds back vacuum. Exits with 1 if there is a problem; warnings alone exit with 0.
    """
    findings = anyio.run(_examine, as_json)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    sys.exit(any(finding.level is Level.PROBLEM for finding in findings))


async def _examine(quiet: bool) -> list[Finding]:
    findings = []
    async with locate(read_settings()) as location:
        async for finding in examine(location, os.environ):
            findings.append(finding)
            if not quiet:
                _print(finding)
    return findings


def _print(finding: Finding) -> None:
    sign, colour = _SIGNS[finding.level]
    click.echo(f"{click.style(sign, fg=colour)}  {finding.check:<13}  {finding.message}")
    if finding.remedy:
        click.echo(f"{'':24}{finding.remedy}")
