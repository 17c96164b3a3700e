"""Scheduled jobs and schedules: a change during a check causes another check."""

import asyncio
from typing import Any

from reactor.database.reconnecting import ReconnectingConnection
from reactor.database.wakeups import NEVER
from reactor.worker.due_times import ScheduledJobs, Schedules
from tests.support.until import until


async def test_a_notification_while_due_jobs_are_made_ready_causes_another_check(database: str) -> None:
    class Notified(ReconnectingConnection):
        async def retry(self, operation: Any, **options: Any) -> Any:
            answer = await super().retry(operation)
            if is_armed:
                scheduled_jobs.notify()
            return answer

    is_armed, connection = False, Notified(database, "test")
    scheduled_jobs = ScheduledJobs(connection)
    assert await scheduled_jobs.promote() == 0
    assert scheduled_jobs.next_at == NEVER, "there is nothing to be made ready"
    scheduled_jobs.check_now()
    is_armed = True
    assert await scheduled_jobs.promote() == 0
    assert scheduled_jobs.next_at < NEVER
    await connection.close()


async def test_a_schedule_that_changes_while_schedules_run_is_run_again(database: str) -> None:
    class Notified(ReconnectingConnection):
        runs = 0

        async def retry(self, operation: Any, **options: Any) -> Any:
            answer = await super().retry(operation)
            self.runs += 1
            if self.runs == 1:
                schedules.notify()
            return answer

    connection = Notified(database, "test")
    schedules = Schedules(connection, longest_pause=NEVER)
    running = asyncio.create_task(schedules.run())
    await until(lambda: connection.runs == 2)
    schedules.stop()
    await running
    await connection.close()
