"""Prometheus metrics: the format, and the collectors of workers and streams."""
