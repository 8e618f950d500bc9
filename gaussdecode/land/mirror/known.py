"""Read and write ``mirror.json``, which keeps the state of a mirror on the landing's own disk."""

from typing import Final

from gaussdecode.errors import ConfigError, unreadable
from gaussdecode.land.disk import Disk
from gaussdecode.land.mirror.plan import KEPT_TRANSACTIONS, MirrorState
from gaussdecode.land.names import MIRROR

_ADVICE: Final = "restore it from a copy of this landing"


def read_state(disk: Disk) -> MirrorState | None:
    """Read it; None for a landing that never had a mirror.

    Raises:
        LandingError: it is damaged.
    """
    raw = disk.read(MIRROR)
    if raw is None:
        return None
    try:
        return MirrorState.from_bytes(raw)
    except ValueError as error:
        raise unreadable(MIRROR, error, _ADVICE) from error


def write_state(disk: Disk, state: MirrorState) -> None:
    """Write it; durable when this returns."""
    hidden = disk.unfinished("", 0, "json")
    disk.write_file(hidden, state.to_bytes())
    disk.replace(hidden, MIRROR)
    disk.sync_directories("")


def mirrored_only_until(disk: Disk) -> int:
    """Data files of entries up to this number may be in the mirror only; -1 for none."""
    state = read_state(disk)
    return -1 if state is None else state.removed


def without_transactions(mirrored_only_until: int) -> int:
    """Of those, the lists of transactions of entries up to this number."""
    return mirrored_only_until - KEPT_TRANSACTIONS


def check_url(state: MirrorState | None, url: str) -> None:
    """Refuse to leave files behind in another mirror.

    Raises:
        ConfigError: it has files that this disk has not.
    """
    if state is not None and state.url != url and state.removed >= 0:
        where = url or "no mirror"
        raise ConfigError(
            f"landing.mirror.url: {where} now, but files of entries up to {state.removed} are in "
            f"{state.url} only; set it back, or copy everything below it to the new place first and "
            f"remove {MIRROR}"
        )
