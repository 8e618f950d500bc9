"""The unit that runs a configuration, as systemd knows it."""

import subprocess
from pathlib import Path
from typing import Final

_SECONDS: Final = 5.0  # arbitrary
_INFINITY: Final = (1 << 64) - 1


def unit_of(path: Path) -> str:
    """Name of the unit that a configuration file is read by."""
    return f"gaussdecode@{path.stem}.service"


def unit_memory_max(unit: str) -> int | None:
    """Bytes that the processes of a unit may have together.

    Returns:
        The limit; None without one, without such a unit, and where systemd does not answer.
    """
    command = ["systemctl", "show", "--property=LoadState", "--property=MemoryMax", unit]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    facts = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    limit = facts.get("MemoryMax", "")
    if facts.get("LoadState") != "loaded" or not limit.isdigit() or int(limit) == _INFINITY:
        return None
    return int(limit)
