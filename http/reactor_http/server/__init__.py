"""The HTTP server process: uvicorn with our limits, health checks, and probes for workers."""
