"""Runs the command `reactor` as `python -m reactor`."""

from reactor.cli import main

main()
