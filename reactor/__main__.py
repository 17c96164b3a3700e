"""`python -m reactor` is the command `reactor`."""

from reactor.cli import main

main()
