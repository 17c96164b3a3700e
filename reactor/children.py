"""The jobs that an attempt chains: created together with its end, and numbered then."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

ChildOutcome = Literal["created", "existing", "busy"]


class Child:
    """A job that `ctx.chain` is going to create. Later children of the same job can depend on it."""

    __slots__ = ("_children", "_place", "_token", "job_type")

    def __init__(self, children: "Children", place: int, token: object, job_type: str) -> None:
        """`token`: tells it from another child that takes its place after it was undone."""
        self._children = children
        self._place = place
        self._token = token
        self.job_type = job_type

    def __repr__(self) -> str:
        return f"<Child {self.job_type!r}, id {self.id}>"

    @property
    def id(self) -> int | None:
        """Of the job, once its parent's end is committed; None before, and if the child was undone. If it was not
        created, of the job that has its idempotency key, or holds its exclusive scope: what depends on the child
        depends on that job."""
        created = self._children.created
        return created.ids[self._place - 1] if created and self.is_planned else None

    @property
    def outcome(self) -> ChildOutcome | None:
        """Whether it was created, and if not, what was in its way. None where the id is None."""
        created = self._children.created
        return created.outcomes[self._place - 1] if created and self.is_planned else None

    @property
    def is_planned(self) -> bool:
        """It was not undone."""
        return self._children.tokens[self._place - 1 : self._place] == [self._token]

    def place_in(self, children: "Children") -> int | None:
        """From 1. None: it was undone, or is another attempt's."""
        return self._place if children is self._children and self.is_planned else None


class Created(NamedTuple):
    ids: Sequence[int]
    outcomes: Sequence[ChildOutcome]


class Children:
    """Of one attempt, in the order in which they were chained."""

    def __init__(self, specs: Iterable[str] = ()) -> None:
        """`specs`: each child as JSON, as reactor.chain takes them."""
        self._specs = list(specs)
        self.tokens: list[object] = []
        """Of their handles. (The handles themselves would be a cycle, which keeps the payloads of ended jobs.)"""
        self._found: Created | None = None
        self.created: Created | None = None
        """What became of them, when it is committed."""

    def __len__(self) -> int:
        return len(self._specs)

    @property
    def as_json(self) -> str:
        return f"[{','.join(self._specs)}]"

    @property
    def size(self) -> int:
        return sum(map(len, self._specs))

    def add(self, job_type: str, spec: str) -> Child:
        self._specs.append(spec)
        self.tokens.append(object())
        return Child(self, len(self._specs), self.tokens[-1], job_type)

    def undo(self, since: int) -> None:
        """Forgets the later ones: the block that chained them was undone."""
        del self._specs[since:], self.tokens[since:]

    def begin(self) -> None:
        """They are about to be created, perhaps once more: what an earlier transaction found was rolled back."""
        self._found = None

    def find(self, ids: Sequence[int], outcomes: Sequence[ChildOutcome]) -> None:
        """What became of them, in a transaction that may still fail."""
        self._found = Created(ids, outcomes)

    def commit(self) -> None:
        self.created = self._found
