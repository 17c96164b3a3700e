-- Unfinished work by queue and job type: the view that autoscalers read (schema/views/workload.sql).
select w.queue, w.job_type, w.due, w.running, w.scheduled, w.parked, w.waiting, w.due_schedules, w.oldest_due_seconds
from reactor.workload w order by w.queue, w.job_type
