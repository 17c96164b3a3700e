"""Who is calling: bearer tokens, stream tokens, and loopback callers without either."""
