"""Every SQL statement of the engine, read from `sql/` once, so that a missing file fails at import."""

from typing import Final

from reactor.assets import folder


def _load(name: str) -> str:
    return (folder("sql") / f"{name}.sql").read_text(encoding="utf-8")


SERVER_FACTS: Final = _load("server_facts")
OLDEST_TRANSACTIONS: Final = _load("oldest_transactions")
