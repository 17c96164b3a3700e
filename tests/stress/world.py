"""What all actors of a run share: names, the current mix of actions, and when to be quiet."""

import asyncio
import random
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tests.stress.attempts import Attempts
from tests.stress.limits import Limits
from tests.stress.model import Model
from tests.stress.report import Report
from tests.stress.sessions import Sessions

TYPES = ("read", "sum", "send")
QUEUES = ("default", "mail", "slow")
QUOTAS: dict[str, int | None] = {"read": None, "sum": 2, "send": 5}
"""The attempts that handlers register."""

FEATURES = {
    "producers": (
        "lanes",
        "scoped",
        "exclusive",
        "keyed",
        "delayed",
        "priorities",
        "rollbacks",
        "savepoints",
        "slow commits",
    ),
    "pipelines": ("chains", "diamonds", "fan-ins", "fan-outs", "late dependants", "cycles"),
    "workers": (
        "deaths",
        "shutdowns",
        "errors",
        "failures",
        "partials",
        "snoozes",
        "releases",
        "abandoned",
        "children",
        "progress",
        "steps",
        "once",
        "stale",
        "transactions",
        "hand overs",
        "claims by id",
        "marks",
        "slots",
    ),
    "operators": (
        "cancel",
        "retry",
        "recover",
        "pause",
        "limit",
        "limits",
        "rates",
        "drain",
        "prune",
        "archive",
        "repair",
    ),
}
"""Each may be on or off in a round. Rounds with few of them find what the others hide, such as a lost wake-up."""

FOCUSED = (
    # Scopes that are taken, parked and freed while their holders are cancelled, abandoned or lost.
    ("scoped", "cancel", "abandoned", "deaths", "shutdowns", "retry", "recover"),
    ("scoped", "priorities", "delayed", "errors", "snoozes", "cancel"),
    # Jobs that must not start again, whatever becomes of their attempts.
    ("once", "deaths", "shutdowns", "releases", "hand overs", "errors", "abandoned", "cancel", "retry", "recover"),
    # Dependants that are released, cancelled and restored from several sides.
    ("chains", "diamonds", "fan-ins", "fan-outs", "late dependants", "failures", "partials", "cancel", "retry"),
    ("fan-ins", "fan-outs", "scoped", "children", "transactions", "cancel", "deaths", "prune"),
    # Keys and exclusive scopes that are released and taken again.
    ("keyed", "exclusive", "scoped", "rollbacks", "savepoints", "cancel", "retry"),
    # Lines that are opened, closed and emptied while limits change.
    ("lanes", "limits", "cancel", "errors", "deaths", "shutdowns"),
    ("lanes", "limits", "rates", "priorities", "snoozes", "releases", "slots", "marks", "savepoints"),
    ("lanes", "limits", "scoped", "priorities", "abandoned", "cancel", "claims by id"),
    ("lanes", "limits", "scoped", "fan-ins", "hand overs", "transactions", "retry", "keyed"),
    # Limits of whole queues and types, beside plain jobs.
    ("limits", "limit", "rates", "marks", "slots", "claims by id", "errors", "pause"),
)
"""Races that random mixes rarely reach: rounds with these features only, each often used."""


@dataclass(frozen=True)
class Mix:
    """Which features are on in a round, and how busy it is."""

    weights: dict[str, float]
    """The share of the actions in which each is used."""
    kinds: int
    """The number of queues, and of types."""
    scopes: int
    lanes: int
    limit_changes: float
    """The share of the operators' turns in which they change a limit, where they change limits at all."""
    ages_limits: bool
    """Limits soon count as known to all claims."""
    batch: int
    """The most rows of an insert."""
    pause_seconds: float
    """Between two actions of an actor, on average."""
    backlog: int
    """Producers pause while there are more unfinished jobs."""

    def has(self, feature: str, chance: random.Random) -> bool:
        return chance.random() < self.weights.get(feature, 0.0)

    def at_rest(self) -> "Mix":
        """Jobs end in all ways, but soon."""
        kept = ("errors", "failures", "partials")
        return replace(self, weights={name: self.weights[name] for name in kept})

    def __str__(self) -> str:
        on = ", ".join(f"{name} {weight:g}" for name, weight in self.weights.items() if weight)
        return (
            f"kinds {self.kinds}, scopes {self.scopes}, lanes {self.lanes}, limit changes {self.limit_changes:g}, "
            f"batch {self.batch}, pause {self.pause_seconds:g} s; {on}"
        )


def draw_mix(chance: random.Random, only: Collection[str] = ()) -> Mix:
    """`only`: these features and no others. Without them, half of the rounds are focused."""
    if not only and chance.random() < 0.5:
        return _draw_focused(chance)
    share, weights = chance.choice((0.2, 0.6, 0.9)), chance.choice(((0.05, 0.2, 0.5), (0.5, 0.9)))
    drawn = {
        feature: chance.choice(weights) if chance.random() < share else 0.0
        for features in FEATURES.values()
        for feature in features
    }
    return Mix(
        # Scopes are where most races are.
        weights={feature: 0.5 if feature in only else 0.0 for feature in drawn}
        if only
        else drawn | ({"scoped": 0.9} if chance.random() < 0.4 else {}),
        kinds=chance.choice((1, 1, 3)),
        scopes=chance.choice((1, 3, 10, 40)),
        lanes=chance.choice((1, 4, 30, 200)),
        limit_changes=0.1 if only else chance.choice((0.02, 0.1, 0.5)),
        ages_limits=bool(only) or chance.random() < 0.7,
        batch=chance.choice((1, 10, 100)),
        pause_seconds=chance.choice((0.0, 0.003) if only else (0.0, 0.0, 0.003, 0.003, 0.03, 2.0)),
        backlog=chance.choice((50, 200, 800)),
    )


def _draw_focused(chance: random.Random) -> Mix:
    features = chance.choice(FOCUSED)
    return Mix(
        weights={name: 0.5 if name in features else 0.0 for names in FEATURES.values() for name in names},
        kinds=chance.choice((1, 1, 2)),
        scopes=chance.choice((1, 10)),
        lanes=chance.choice((1, 4, 30)),
        limit_changes=chance.choice((0.01, 0.05, 0.3)),
        ages_limits=chance.random() < 0.7,
        batch=chance.choice((1, 10, 100)),
        pause_seconds=0.0,
        backlog=chance.choice((50, 200) if "lanes" in features else (200, 1000)),
    )


@dataclass
class World:
    sessions: Sessions
    report: Report
    attempts: Attempts
    model: Model
    limits: Limits
    mix: Mix
    seed: int
    is_quiet: bool = False
    """Nothing new is produced, and operators rest: everything that is there must end."""
    is_over: bool = False
    busy: set[str] = field(default_factory=set)
    """Actors that are in the middle of an action."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def chance(self, name: str) -> random.Random:
        """Every actor has its own, so that its choices don't depend on the others' speed."""
        return random.Random(f"{self.seed} {name}")

    async def turn(self, name: str, chance: random.Random, longer: float = 1.0) -> bool:
        """Waits for the actor's next turn. False: the run is over."""
        self.busy.discard(name)
        await asyncio.sleep(chance.expovariate(1.0) * longer * max(0.001, self.mix.pause_seconds))
        while self.is_quiet and not self.is_over:
            await asyncio.sleep(0.02)
        self.busy.add(name)
        return not self.is_over

    @property
    def backlog(self) -> int:
        return len(self.model.unfinished)
