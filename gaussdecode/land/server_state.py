"""Read and write ``server.json``: the last facts about the servers of a landing.

The lag after a restart is measured from them. Nothing else depends on them: a file that is missing, torn or of
another version tells nothing, and the lag is not known then. So the file is not synced, and neither a full
disk nor a failed write is an error. Only the process that holds the landing's lock writes it.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gaussdecode.land.names import SERVER, unfinished_name
from gaussdecode.model.seal import canonical_json, check_version, read_sealed, sealed

_VERSION: Final = 1
_HIDDEN: Final = unfinished_name("server", 0, 0, "json")
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o640

Record = dict[str, Any]  # Any: JSON


def read_server_state(root: Path) -> dict[str, Record]:
    """Read the facts of each source; empty where the file tells nothing."""
    try:
        record = read_sealed((root / SERVER).read_bytes())
        check_version(record, _VERSION)
        return dict(record["sources"])
    except (OSError, KeyError, TypeError, ValueError):
        return {}


def write_server_state(root: Path, sources: Mapping[str, Record]) -> None:
    """Replace the facts, if the disk takes them."""
    body = sealed(canonical_json({"version": _VERSION, "sources": sources}))
    with contextlib.suppress(OSError):
        descriptor = os.open(root / _HIDDEN, _FLAGS, _MODE)
        try:
            os.write(descriptor, body)  # a part of it is found torn
        finally:
            os.close(descriptor)
        os.replace(root / _HIDDEN, root / SERVER)
