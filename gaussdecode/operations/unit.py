"""Ask systemd about the unit that runs a configuration."""

import contextlib
import dataclasses
import grp
import json
import os
import pwd
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SERVE_UNIT: Final = "gaussdecode-serve"
"""The unit of `gaussdecode serve`, before its @."""
_SECONDS: Final = 5.0  # arbitrary
_INFINITY: Final = (1 << 64) - 1
_HOMES: Final = ("/home", "/root", "/run/user")
_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 - the unit has its own
_STATE: Final = "/var/lib"
_UNIT: Final = (
    "User",
    "ExecStart",
    "SupplementaryGroups",
    "ProtectHome",
    "ProtectSystem",
    "PrivateTmp",
    "ReadWritePaths",
    "StateDirectory",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """The unit that runs a configuration.

    Attributes:
        name: name of the unit.
        account: user that it runs as.
        groups: groups of that user there, by number.
        credentials: files that systemd hands over, by name of the credential; None where that is unknown.
        hidden: directories that the unit does not see as they are.
        writable: directories that alone may be written; None where the rest may be too.
    """

    name: str
    account: pwd.struct_passwd
    groups: frozenset[int]
    credentials: Mapping[str, str] | None
    hidden: tuple[str, ...]
    writable: tuple[str, ...] | None


def unit_of(path: Path, template: str = "gaussdecode") -> str:
    """Name of the unit that reads a configuration file."""
    return f"{template}@{path.stem}.service"


def unit_memory_max(unit: str) -> int | None:
    """Memory limit of a unit's processes together, in bytes.

    Returns:
        The limit; None without a limit or unit, or if systemd does not answer.
    """
    limit = _properties(unit, "MemoryMax").get("MemoryMax", "")
    return int(limit) if limit.isdigit() and int(limit) != _INFINITY else None


def find_unit(path: Path, template: str = "gaussdecode") -> Unit | None:
    """The unit that runs a configuration; None without one, or if it runs another file.

    Args:
        path: the configuration.
        template: name of the unit before its @.
    """
    name = unit_of(path, template)
    facts = _properties(name, *_UNIT)
    if f" {path.absolute()} " not in f"{facts.get('ExecStart')} ":
        return None
    try:
        account = pwd.getpwnam(facts.get("User", ""))
    except KeyError:
        return None
    groups = set(os.getgrouplist(account.pw_name, account.pw_gid))
    for group in facts.get("SupplementaryGroups", "").split():
        with contextlib.suppress(KeyError):
            groups.add(grp.getgrnam(group).gr_gid)
    states = [f"{_STATE}/{state}" for state in facts.get("StateDirectory", "").split()]
    paths = [path.lstrip("+-") for path in facts.get("ReadWritePaths", "").split()]
    is_strict = facts.get("ProtectSystem") == "strict"
    return Unit(
        name=name,
        account=account,
        groups=frozenset(groups),
        credentials=_credentials(name),
        hidden=(_HOMES if facts.get("ProtectHome") in {"yes", "tmpfs"} else ())
        + (_TEMPORARY if facts.get("PrivateTmp") == "yes" else ()),
        writable=(*states, *paths) if is_strict else None,
    )


def unit_user(path: Path) -> pwd.struct_passwd | None:
    """Account of the unit that runs a configuration; None without a unit, or if it runs another file."""
    unit = find_unit(path)
    return None if unit is None else unit.account


def unit_state(unit: str) -> str | None:
    """State of a unit: ``failed, status 78``; None without such a unit."""
    facts = _properties(unit, "ActiveState", "ExecMainStatus")
    state, status = facts.get("ActiveState"), facts.get("ExecMainStatus", "0")
    return state if state is None or status == "0" else f"{state}, status {status}"


def _credentials(unit: str) -> dict[str, str] | None:
    """Files of LoadCredential; None if systemd does not say. `systemctl show` cannot print them."""
    label = "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):02x}" for c in unit)
    where = ("org.freedesktop.systemd1", f"/org/freedesktop/systemd1/unit/{label}")
    interface = "org.freedesktop.systemd1.Service"
    try:
        text = _answer(
            "busctl", "--json=short", "get-property", *where, interface, "LoadCredential"
        )
        return dict(json.loads(text)["data"])
    except (ValueError, KeyError, TypeError):
        return None


def _answer(*command: str) -> str:
    """Output of a command; empty if it cannot be run."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _properties(unit: str, *names: str) -> dict[str, str]:
    """Properties of a unit; empty if systemd does not have it or does not answer."""
    wanted = [f"--property={name}" for name in ("LoadState", *names)]
    text = _answer("systemctl", "show", *wanted, unit)
    facts = dict(line.partition("=")[::2] for line in text.splitlines())
    return facts if facts.get("LoadState") == "loaded" else {}
