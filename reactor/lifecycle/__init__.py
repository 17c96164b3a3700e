"""The only code that writes the state of a job: claim, settle, release, leases and steps, each write fenced.

    waiting --> pending --> running --> completed | partial | failed | cancelled
                   ^           |
                   +-----------+  retry, snooze, release, lost lease

`writers` is the task that writes for the attempts of a process: `batch_writer` with its instances for endings, steps
and progress. Imports `database`. Handlers reach it through their context, the worker and the pod directly.
"""
