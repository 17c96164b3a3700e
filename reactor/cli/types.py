"""`reactor types`: lists the job types that pods have handlers for."""

from typing import Any

import click

from reactor.cli.options import json_option
from reactor.cli.output import print_fields, print_json, print_table
from reactor.cli.session import run_connected
from reactor.duration import format_duration
from reactor.queries.job_types import find_job_type, list_job_types


@click.command()
@click.argument("name", required=False)
@json_option
def types(name: str | None, as_json: bool) -> None:
    """List the job types that pods have handlers for, or show one with the schema of its payload.

    \b
      reactor types
      reactor types csv_ingest

    PODS is the number of live pods that have a handler. Types that no pod has had for 30 days are not listed.
    """
    if name is not None:
        found = run_connected(lambda connection: find_job_type(connection, name))
        print_json(found) if as_json else print_fields(found)
        return
    listed = run_connected(list_job_types)
    if as_json:
        print_json(listed)
    elif not listed:
        click.echo("No pod has published a job type.", err=True)
    else:
        print_table(
            ["NAME", "PODS", "LAST SEEN", "QUEUE", "ATTEMPTS", "TIMEOUT", "PAYLOAD", "DESCRIPTION"],
            [_row(one) for one in listed],
            shrinkable=["NAME", "PAYLOAD", "DESCRIPTION"],
        )


def _row(one: dict[str, Any]) -> tuple[object, ...]:
    return (
        one["name"],
        len(one["pods"]),
        one["last_seen_at"],
        one["queue"],
        one["max_attempts"] or 3,
        None if one["timeout_seconds"] is None else format_duration(one["timeout_seconds"]),
        _payload(one),
        one["description"],
    )


def _payload(one: dict[str, Any]) -> str:
    """The fields, those that are required with an asterisk."""
    schema = one["payload_schema"]
    if not isinstance(schema, dict):
        return "" if schema is None else "any"
    required = schema.get("required", ())
    fields = ", ".join(f"{field}*" if field in required else field for field in schema.get("properties", ()))
    return fields if one["is_checked"] else f"{fields} (not checked)"
