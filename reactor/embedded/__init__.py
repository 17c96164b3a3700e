"""An embedded PostgreSQL: installed by pip, shared by the processes of a machine, stopped after the last of them.

Imports `database`. Imported by `testing`, `doctor` and the command line.
"""

from reactor.embedded.binaries import installed_versions
from reactor.embedded.server import EmbeddedServer, default_folder, start_embedded

__all__ = ["EmbeddedServer", "default_folder", "installed_versions", "start_embedded"]
