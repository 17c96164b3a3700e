"""The members that editors offer to users: what they need, and nothing else."""

import pytest

from reactor import Context, Job, Pipeline, Reactor, SyncContext

FOR_BOTH = {
    "attempt_id",
    "cancelled",
    "chain",
    "check",
    "job",
    "log",
    "meta",
    "progress",
    "resources",
    "step",
    "steps",
    "transaction",
    "upstream",
}


@pytest.mark.parametrize(
    ("public", "members"),
    [
        # A thread can use neither asyncpg's pool nor SQLAlchemy's async session.
        (Context, FOR_BOTH | {"pool", "session"}),
        (SyncContext, FOR_BOTH),
        (
            Job,
            {
                "attempt_id",
                "attempts",
                "created_at",
                "delivery",
                "id",
                "job_type",
                "locked_at",
                "parent_id",
                "payload",
                "pipeline_id",
                "priority",
                "queue",
                "quota",
                "scope",
                "started_at",
                "tags",
                "timeout_seconds",
                # Of every tuple.
                "count",
                "index",
            },
        ),
        (Reactor, {"counts", "is_well", "run_job"}),
        (Pipeline, {"job", "submit"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_class_has_the_documented_members_and_no_others(public: type, members: set[str]) -> None:
    assert {name for name in dir(public) if not name.startswith("_")} == members


def test_an_instance_shows_no_more_than_its_class() -> None:
    """Attributes start with an underscore."""
    for shown in (Pipeline(), Reactor("postgresql://nowhere")):
        assert {name for name in vars(shown) if not name.startswith("_")} == set()
    for slotted in (Context, SyncContext):
        assert all(name.startswith("_") for name in slotted.__slots__)
