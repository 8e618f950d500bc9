"""Read the virtual slots of a landing from beside the server that has them, as the daemon does.

Given the root of a landing. Needs no lock: a slot's file is replaced as a whole.
"""

import dataclasses
import fcntl
import os
from pathlib import Path
from typing import Final

from gaussdecode.land.names import LOCK, SERVE
from gaussdecode.model.seal import read_sealed

SLOTS: Final = "serve/slots"


@dataclasses.dataclass(frozen=True, slots=True)
class KeptSlot:
    """A virtual slot as its file has it.

    Attributes:
        name: of the slot.
        n: entries before this one are confirmed; None where the file cannot be read.
        epoch: of `lsn`.
        lsn: transactions that end up to here are confirmed.
        plugin: output plug-in.
        owner: user that created it; empty where there are no users.
        is_connected: a client streams from it; None where that is not known.
        database: of its creation; where the landing has several sources, the one that it is of.
    """

    name: str
    n: int | None
    epoch: int = 0
    lsn: int = 0
    plugin: str = ""
    owner: str = ""
    is_connected: bool | None = None
    database: str = ""


def read_slots(root: Path) -> list[KeptSlot]:
    """All slots that are kept, by name."""
    try:
        paths = sorted((root / SLOTS).glob("[a-z0-9_]*.json"))
    except OSError:
        return []
    found = []
    is_served = is_running(root) if paths else False
    for path in paths:
        try:
            record = read_sealed(path.read_bytes())
            active = record.get("is_active") if is_served is not False else False
            slot = KeptSlot(
                path.stem,
                int(record["n"]),
                int(record.get("epoch", 0)),
                int(record.get("lsn", 0)),
                str(record.get("plugin", "")),
                str(record.get("owner", "")),
                active if is_served is not None else None,
                str(record.get("database", "")),
            )
        except FileNotFoundError:
            continue  # it was dropped meanwhile
        except (OSError, KeyError, TypeError, ValueError):
            slot = KeptSlot(path.stem, None)
        found.append(slot)
    return found


def is_running(root: Path) -> bool | None:
    """Whether a server has the slots of a landing now; None where this user may not know."""
    try:
        handle = os.open(root / SERVE / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(handle)  # a server that starts just now tries again
    return False
