"""An app that declares a schedule, for pods that tests start."""

from reactor import register, schedule


@register("work")
async def work() -> None:
    pass


schedule("s", "work", every=1, payload={"a": 1})
