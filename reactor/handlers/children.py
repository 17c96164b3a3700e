"""What a handler says of a job that it chains, as reactor.chain takes it."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, get_args

from reactor.children import Child, Children
from reactor.client.submit import arguments_of, encode_arguments, new_job
from reactor.errors import JobInvalid

Inherited = Literal["scope", "queue", "priority", "lane", "tags"]
"""What a child can take from its parent. Its own scope and tags are added to those of its parent."""

_REPLACED = frozenset({"queue", "priority", "lane"})


class ChildOptions(NamedTuple):
    depends_on: Iterable[Child | int]
    after_end_of: Iterable[Child | int]
    inherit: Iterable[Inherited]
    fields: Mapping[str, Any]
    """The other fields of NewJob."""


def encode_child(children: Children, job_type: str, payload: Mapping[str, Any] | None, options: ChildOptions) -> str:
    """`children`: those that were chained before."""
    arguments = arguments_of(new_job(job_type, payload, options.fields))
    needs = [_need(children, one, "completed") for one in options.depends_on]
    needs += [_need(children, one, "finished") for one in options.after_end_of]
    if needs:
        arguments["depends_on"] = needs
    if inherited := _inherited(options):
        arguments["inherit"] = inherited
    return encode_arguments([arguments])[1:-1]


def _need(children: Children, one: Child | int, needs: str) -> dict[str, Any]:
    if isinstance(one, Child):
        place = one.place_in(children)
        if place is None:
            raise JobInvalid(
                f"it depends on a child of the type {one.job_type!r} that is not going to be created",
                "That child was chained by another job, or in a block that was undone. Chain it again.",
            )
        return {"place": place, "needs": needs}
    if not isinstance(one, int):
        raise JobInvalid(
            f"it can't depend on {type(one).__name__}", "Pass what ctx.chain returned, or the id of a job that exists."
        )
    return {"id": one, "needs": needs}


def _inherited(options: ChildOptions) -> list[Inherited]:
    if isinstance(options.inherit, str):
        raise JobInvalid("inherit is a text", f'Pass a list: inherit=["{options.inherit}"].')
    inherited = list(options.inherit)
    for name in inherited:
        if name not in get_args(Inherited):
            raise JobInvalid(f"it can't inherit {name!r}", f"It can inherit {', '.join(get_args(Inherited))}.")
        if name in _REPLACED and name in options.fields:
            raise JobInvalid(f"its {name} is both given and inherited", "Leave out one of them.")
    return inherited
