"""The project is material for type checkers, and is not run."""

collect_ignore = ["project"]
