"""The buffer of an attempt's log: what it keeps, and how much at most."""

import threading
from uuid import uuid4

import pytest

from reactor.errors import SettingsInvalid
from reactor.job_log import LEVELS, JobLog, LogOptions, Room


def log_with(options: LogOptions, room: Room | None = None) -> JobLog:
    threshold = LEVELS.index(options.level)
    return JobLog(1, uuid4(), 1, threshold, room or Room(options), lambda _: None, is_later_attempt=False)


def messages(job_log: JobLog) -> list[str]:
    return [line.message for line in job_log.take(0, is_end=True)]


def test_lines_beyond_the_limit_are_left_out_between_the_first_and_the_last_ones() -> None:
    job_log = log_with(LogOptions(max_lines=10))
    for number in range(1, 101):
        job_log.append("info", None, str(number), None)
    assert messages(job_log) == ["1", "2", "3", "4", "5", "90 lines left out", "96", "97", "98", "99", "100"]


def test_the_number_of_a_line_is_its_position_among_all_lines() -> None:
    job_log = log_with(LogOptions(max_lines=4))
    for number in range(1, 11):
        job_log.append("info", None, str(number), None)
    assert [line.number for line in job_log.take(0, is_end=True)] == [1, 2, 8, 9, 10]


def test_a_loop_that_logs_takes_no_more_memory_than_the_limit() -> None:
    options = LogOptions(max_lines=1_000_000, max_bytes=100_000)
    room = Room(options)
    job_log = log_with(options, room)
    for _ in range(20_000):
        job_log.append("info", None, "x" * 100, '{"a": 1}')
    assert room.used <= 101_000
    assert job_log.kept < 600


def test_a_line_that_alone_exceeds_the_limit_is_left_out() -> None:
    job_log = log_with(LogOptions(max_lines=1, max_bytes=10))
    job_log.append("info", None, "x" * 100, None)
    assert messages(job_log) == ["1 line left out"]


def test_all_attempts_of_a_process_share_the_memory() -> None:
    """While the database takes nothing."""
    options = LogOptions()
    room = Room(options, max_bytes=10_000)
    logs = [log_with(options, room) for _ in range(100)]
    for _ in range(50):
        for job_log in logs:
            job_log.append("info", None, "x" * 100, None)
    assert room.used <= 20_200
    assert sum(job_log.kept for job_log in logs) <= 101
    for job_log in logs:
        taken = job_log.take(0, is_end=True)
        assert taken[-1].message == "x" * 100 or taken[-1].message.endswith("left out")
        job_log.close()
    assert room.used == 0


def test_a_log_that_ran_out_of_memory_continues_when_lines_are_stored() -> None:
    options = LogOptions()
    room = Room(options, max_bytes=1000)
    other, job_log = log_with(options, room), log_with(options, room)
    other.append("info", None, "x" * 1500, None)
    for number in range(300):
        job_log.append("info", None, str(number), None)
    other.close()
    kept = [line.message for line in job_log.take(1000)]
    assert kept[0].endswith("lines left out")
    assert kept[-1] == "299"
    job_log.confirm()
    job_log.append("info", None, "more", None)
    assert messages(job_log) == ["more"]


def test_lines_that_were_put_back_come_first_again() -> None:
    job_log = log_with(LogOptions())
    for text in "abc":
        job_log.append("info", None, text, None)
    assert [line.message for line in job_log.take(2)] == ["a", "b"]
    assert job_log.take(2) == [], "the others wait for those in flight"
    job_log.put_back()
    assert messages(job_log) == ["a", "b", "c"]


def test_nothing_is_kept_after_the_end() -> None:
    options = LogOptions()
    room = Room(options)
    job_log = log_with(options, room)
    job_log.append("info", None, "a", None)
    job_log.close()
    job_log.append("info", None, "b", None)
    assert (job_log.kept, room.used, messages(job_log)) == (0, 0, [])


def test_a_line_may_be_logged_while_another_one_is() -> None:
    """By a finalizer that the garbage collector calls."""
    options = LogOptions()
    room = Room(options)
    job_log = log_with(options, room)
    with room.lock:
        job_log.append("info", None, "of a finalizer", None)
    assert messages(job_log) == ["of a finalizer"]


def test_threads_lose_no_lines() -> None:
    options = LogOptions()
    room = Room(options)
    job_log = log_with(options, room)
    taken: list[int] = []

    def fill() -> None:
        for _ in range(1000):
            job_log.append("info", None, "x", None)

    threads = [threading.Thread(target=fill) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += [line.number for line in job_log.take(10)]
        job_log.confirm()
    taken += [line.number for line in job_log.take(0, is_end=True)]
    job_log.confirm()
    assert taken == list(range(1, 4001))
    assert room.used == 0


@pytest.mark.parametrize("wrong", [{"level": "loud"}, {"max_lines": 0}, {"max_bytes": 0}, {"max_attempts": 0}])
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsInvalid):
        LogOptions(**wrong)  # type: ignore[arg-type]
