"""The project is input for type checkers, and is not run."""

collect_ignore = ["project"]
