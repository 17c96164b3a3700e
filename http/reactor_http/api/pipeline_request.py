"""Turns the jobs that were sent into a pipeline: names become places."""

from graphlib import CycleError, TopologicalSorter

from pydantic_core import from_json

from reactor.client.pipeline import Node, Pipeline
from reactor_http.api.read_request import unusable
from reactor_http.api.requests import PipelineSent

MOST_NEEDS = 100_000


def check_needs(body: bytes) -> None:
    """Each would cost more than ten microseconds to be read in full, and a body has room for four million."""
    try:
        sent = from_json(body)
    except ValueError:
        return  # who reads it says why
    jobs = sent.get("jobs") if isinstance(sent, dict) else None
    lists = [job.get("depends_on") for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []
    needs = sum(len(one) for one in lists if isinstance(one, list))
    if needs > MOST_NEEDS:
        raise unusable({"jobs": f"have {needs:,} dependencies in all, and may have {MOST_NEEDS:,}"})


def plan(sent: PipelineSent) -> tuple[Pipeline, list[str]]:
    """The pipeline, and what each of its jobs is called in the answer."""
    names = [job.name or f"#{place}" for place, job in enumerate(sent.jobs, 1)]
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        if name in places:
            raise unusable({f"jobs[{place}].name": f"is the name of jobs[{places[name]}] already"})
        places[name] = place
    _check_alone(sent)
    _check_order(sent, places)
    pipeline = Pipeline(sent.pipeline_id)
    nodes = [Node(pipeline, place + 1) for place in range(len(sent.jobs))]
    for place, job in enumerate(sent.jobs):
        needs: dict[Node | int, str] = {}
        for number, need in enumerate(job.depends_on):
            field = f"jobs[{place}].depends_on[{number}]"
            if isinstance(need.job, str) and need.job not in places:
                raise unusable({field: f"names {need.job[:200]!r}, and there is no such job in this pipeline"})
            other = nodes[places[need.job]] if isinstance(need.job, str) else need.job
            if other == nodes[place]:
                raise unusable({field: "names the job itself"})
            if needs.setdefault(other, need.needs) != need.needs:
                raise unusable({field: "names a job twice, with different needs"})
        pipeline.job(
            job.job_type,
            job.payload,
            after=[other for other, kind in needs.items() if kind == "completed"],
            after_end_of=[other for other, kind in needs.items() if kind == "finished"],
            **job.options(),
        )
    return pipeline, names


def _check_order(sent: PipelineSent, places: dict[str, int]) -> None:
    """The database would name a circle by ids that nobody has ever seen."""
    needs = [[places[one.job] for one in job.depends_on if one.job in places] for job in sent.jobs]
    try:
        TopologicalSorter(dict(enumerate(needs))).prepare()
    except CycleError as error:
        first, *others = sorted(set(error.args[1]))
        if others:
            listed = ", ".join(f"jobs[{place}]" for place in others[:10])
            raise unusable({f"jobs[{first}].depends_on": f"leads back to the job itself, through {listed}"}) from None


def _check_alone(sent: PipelineSent) -> None:
    """The database would refuse the second for the sake of the first, and take both back."""
    holders: dict[tuple[str, str | None, str | None], int] = {}
    for place, job in enumerate(sent.jobs):
        held = {"idempotency_key": (job.job_type, job.idempotency_key), "scope": (None, job.scope)}
        for field, (kind, value) in held.items():
            if value is None or (field == "scope" and not job.exclusive):
                continue
            other = holders.setdefault((field, kind, value), place)
            if other != place:
                what = "and exclusive there too" if field == "scope" else "for the same type"
                raise unusable({f"jobs[{place}].{field}": f"is that of jobs[{other}] already, {what}"})
