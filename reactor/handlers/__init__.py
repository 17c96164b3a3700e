"""What users write and what they are given: the registry, the context, steps, transactions.

`context` and `sync_context` are the faces that handlers see, `attempt` is the state behind them. Dependencies go one
way: registry, context, steps, record_step, attempt, step_log.

Imports `lifecycle` and `client`, never `worker`: a handler does not know which process runs it.
"""
