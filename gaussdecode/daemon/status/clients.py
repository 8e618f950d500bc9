"""Spell virtual slots of ``gaussdecode serve`` for people, out of the document of ``/status``."""

from collections.abc import Mapping
from typing import Any, Final

from gaussdecode.daemon.status.text import UNKNOWN, known, size, span

COLUMNS: Final = ("virtual slot", "user", "plug-in", "confirmed", "behind", "for", "client")
_CLIENT: Final = {True: "connected", False: "not connected", None: UNKNOWN}


def serve_line(serve: Mapping[str, Any]) -> str:  # Any: JSON
    """The server in the daemon, as a line of ``gaussdecode status``."""
    reason = f": {serve['reason']}" if serve["reason"] else ""
    return f"serve at {serve['listen']}: {serve['state']}{reason}"


def slot_cells(of: Mapping[str, Any]) -> tuple[str, ...]:  # Any: JSON
    """One slot, for `COLUMNS`; a dash for what is not known."""
    client = "lost" if of["is_lost"] else _CLIENT[of["is_connected"]]
    return (
        of["name"],
        of["owner"] or UNKNOWN,
        of["plugin"] or UNKNOWN,
        of["confirmed_lsn"] or UNKNOWN,
        known(of["behind_bytes"], size),
        known(of["behind_seconds"], span),
        client if of["is_lost"] is not None else "its file cannot be read",
    )


def slot_line(of: Mapping[str, Any]) -> str:  # Any: JSON
    """One slot, as a line of ``gaussdecode status``."""
    name, user, plugin, confirmed, behind, seconds, client = slot_cells(of)
    return (
        f"virtual slot {name}: {client}, confirmed {confirmed}, {behind} and {seconds} behind, user {user}, "
        f"plug-in {plugin}"
    )
