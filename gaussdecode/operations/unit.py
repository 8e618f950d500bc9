"""Ask systemd about the unit that runs a configuration."""

import pwd
import subprocess
from pathlib import Path
from typing import Final

_SECONDS: Final = 5.0  # arbitrary
_INFINITY: Final = (1 << 64) - 1


def unit_of(path: Path) -> str:
    """Name of the unit that reads a configuration file."""
    return f"gaussdecode@{path.stem}.service"


def unit_memory_max(unit: str) -> int | None:
    """Memory limit of a unit's processes together, in bytes.

    Returns:
        The limit; None without a limit or unit, or if systemd does not answer.
    """
    limit = _properties(unit, "MemoryMax").get("MemoryMax", "")
    return int(limit) if limit.isdigit() and int(limit) != _INFINITY else None


def unit_user(path: Path) -> pwd.struct_passwd | None:
    """Account of the unit that runs a configuration; None without a unit, or if it runs another file."""
    facts = _properties(unit_of(path), "User", "ExecStart")
    if f" {path.absolute()} " not in f"{facts.get('ExecStart')} ":
        return None
    try:
        return pwd.getpwnam(facts.get("User", ""))
    except KeyError:
        return None


def unit_state(unit: str) -> str | None:
    """State of a unit: ``failed, status 78``; None without such a unit."""
    facts = _properties(unit, "ActiveState", "ExecMainStatus")
    state, status = facts.get("ActiveState"), facts.get("ExecMainStatus", "0")
    return state if state is None or status == "0" else f"{state}, status {status}"


def _properties(unit: str, *names: str) -> dict[str, str]:
    """Properties of a unit; empty if systemd does not have it or does not answer."""
    wanted = [f"--property={name}" for name in ("LoadState", *names)]
    try:
        done = subprocess.run(
            ["systemctl", "show", *wanted, unit],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    facts = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    return facts if facts.get("LoadState") == "loaded" else {}
