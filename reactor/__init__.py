"""A job and pipeline engine on PostgreSQL: insert a row, and it is run."""

__version__ = "0.1.0"
