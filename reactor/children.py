"""The jobs that an attempt chains: created together with its end, and numbered then."""

from collections.abc import Iterable, Sequence
from typing import Literal

ChildOutcome = Literal["created", "existing", "busy"]


class Child:
    """A job that `ctx.chain` is going to create. Later children of the same job can depend on it."""

    __slots__ = ("_children", "_place", "job_type")

    def __init__(self, children: "Children", place: int, job_type: str) -> None:
        self._children = children
        self._place = place
        self.job_type = job_type

    def __repr__(self) -> str:
        return f"<Child {self.job_type!r}, id {self.id}>"

    @property
    def id(self) -> int | None:
        """Of the job, once its parent's end is committed; None before. If it was not created, of the job that has its
        idempotency key, or holds its exclusive scope: what depends on the child depends on that job."""
        created = self._children.created
        return None if created is None else created[0][self._place - 1]

    @property
    def outcome(self) -> ChildOutcome | None:
        """Whether it was created, and if not, what was in its way. None before the commit."""
        created = self._children.created
        return None if created is None else created[1][self._place - 1]


class Children:
    """Of one attempt, in the order in which they were chained."""

    def __init__(self, specs: Iterable[str] = ()) -> None:
        """`specs`: each child as JSON, as reactor.chain takes them."""
        self._specs = list(specs)
        self._handles: list[Child] = []
        self._found: tuple[Sequence[int], Sequence[ChildOutcome]] | None = None
        self.created: tuple[Sequence[int], Sequence[ChildOutcome]] | None = None
        """Their ids and outcomes, when these are committed."""

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
        self._handles.append(Child(self, len(self._specs), job_type))
        return self._handles[-1]

    def undo(self, since: int) -> None:
        """Forgets the later ones: the block that chained them was undone."""
        del self._specs[since:], self._handles[since:]

    def place(self, child: Child) -> int | None:
        """None: it was undone, or is another attempt's."""
        place = child._place
        return place if self._handles[place - 1 : place] == [child] else None

    def begin(self) -> None:
        """They are about to be created, perhaps once more: what an earlier transaction found was rolled back."""
        self._found = None

    def find(self, ids: Sequence[int], outcomes: Sequence[ChildOutcome]) -> None:
        """What became of them, in a transaction that may still fail."""
        self._found = ids, outcomes

    def commit(self) -> None:
        self.created = self._found
