"""What users write and what they are given: the registry, the context, steps, transactions.

Imports `lifecycle` and `client`, never `worker`: a handler does not know which process runs it.
"""
