"""Restrictions of queues."""

from reactor.database.connection import Connection
from reactor.lifecycle.lease import Worker
from reactor.queries.queues import find_restrictions
from tests.support.jobs import claim, insert


async def test_restrictions_list_paused_and_limited_queues(connection: Connection, worker: Worker) -> None:
    assert (await find_restrictions(connection)).queues == []
    await connection.execute("insert into reactor.queues values ('a', true, null), ('b', false, 3), ('c', false, null)")
    await claim(connection, worker, await insert(connection, queue="b"))
    restrictions = await find_restrictions(connection)
    assert not restrictions.draining
    assert restrictions.queues == [
        {"queue": "a", "paused": True, "max_running": None, "running": 0},
        {"queue": "b", "paused": False, "max_running": 3, "running": 1},
    ]
