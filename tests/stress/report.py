"""What a run did and what it found."""

from collections import Counter
from dataclasses import dataclass, field

_SHOWN_PER_KIND = 5

KNOWN: dict[str, str] = {}
"""Kinds of violations that don't fail a run, such as `deadlock: cancel x sweep`, with the reason."""


@dataclass
class Report:
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    """What was done, by name."""
    found: dict[str, list[str]] = field(default_factory=dict)
    """Violations by kind, the first ones in full."""
    totals: Counter[str] = field(default_factory=Counter)
    """Violations by kind, all of them. Snapshots show the same one again and again: it counts once."""
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def violation(self, kind: str, what: str) -> None:
        if (kind, what) in self._seen:
            return
        self._seen.add((kind, what))
        self.totals[kind] += 1
        shown = self.found.setdefault(kind, [])
        if len(shown) < _SHOWN_PER_KIND:
            shown.append(what)
            print(f"! {kind}: {what}", flush=True)

    @property
    def failures(self) -> dict[str, int]:
        """Violations by kind, without the known ones."""
        return {kind: number for kind, number in self.totals.items() if kind not in KNOWN}

    def text(self) -> str:
        done = ", ".join(f"{number} {what}" for what, number in sorted(self.counts.items()))
        lines = [f"seed {self.seed}: {done}"]
        for kind, number in sorted(self.totals.items()):
            known = f" (known: {KNOWN[kind]})" if kind in KNOWN else ""
            lines.append(f"{number} x {kind}{known}")
            lines += [f"    {what}" for what in self.found[kind]]
        return "\n".join(lines)
