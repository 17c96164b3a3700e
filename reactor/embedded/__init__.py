"""A real PostgreSQL without ceremony: from pip, shared by the processes of this machine, stopped after the last."""

from reactor.embedded.binaries import installed_versions
from reactor.embedded.server import EmbeddedServer, default_folder, start_embedded

__all__ = ["EmbeddedServer", "default_folder", "installed_versions", "start_embedded"]
