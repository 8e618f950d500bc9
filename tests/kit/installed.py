"""A daemon that systemd runs from our unit, on a machine of its own.

The same for a test as `Daemon`, but installed as the guide says: configuration and password in
``/etc/gaussdecode``, the landing below ``/var/lib/gaussdecode``, commands given by root.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import yaml

from kit.daemon import Daemon, Json, wait_until
from kit.machine import Machine
from kit.postgres import Database

ETC: Final = Path("/etc/gaussdecode")
LIB: Final = Path("/var/lib/gaussdecode")
ROLE: Final = "installed"
PASSWORD: Final = "kept by root alone"


class Installed(Daemon):
    """One instance of the unit.

    Attributes:
        machine: where it is.
        place: of the landing, as the machine names it; `root` is the same as seen from here.
        unit: its name.
    """

    def __init__(
        self, machine: Machine, database: Database, *, config: Mapping[str, Json] | None = None
    ) -> None:
        self.machine = machine
        self.place = LIB / database.name
        self.unit = f"gaussdecode@{database.name}"
        self._is_running, self._ask_at = False, 0.0
        parts = {key: dict(of) for key, of in (config or {}).items()}
        password = str(ETC / f"{database.name}.password")
        parts["source"] = {"password-file": password, **parts.get("source", {})}
        dsn = database.dsn.replace("user=postgres", f"user={ROLE}")
        super().__init__(database, ETC, dsn=dsn, config=parts)
        self.root = machine.root / self.place.relative_to("/")
        self.write_config(landing={"root": str(self.place)})
        machine.write(password, f"{PASSWORD}\n", mode="0600")

    def write_config(self, **changes: Json) -> None:
        """Write the configuration again, as the guide has it laid down."""
        for section, keys in changes.items():
            self._config[section] = {**self._config.get(section, {}), **keys}
        text = yaml.safe_dump(self._config, sort_keys=False)
        self.machine.write(str(self.config_path), text, mode="0640", group="gaussdecode")

    def begin(self) -> None:
        """Begin the landing, with the slot that is there or a new one, by root."""
        if not (self.root / "layout.json").exists():
            slots = self.database.execute(
                f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{self.database.slot}'"
            )
            self.command("slot adopt" if slots else "slot create")

    def command(self, words: str, *rest: str) -> str:
        """Have root give a command about this slot; gives what it printed."""
        return self.machine.do(" ".join(("gaussdecode", words, str(self.config_path), *rest)))

    def start(self) -> Self:
        """``systemctl start``; returns when the daemon has said that it is ready."""
        self.begin()
        self.machine.do(f"systemctl start {self.unit}")
        self._ask_at = 0.0
        return self

    def stop(self) -> int:
        """``systemctl stop``; gives the exit status."""
        self.machine.do(f"systemctl stop {self.unit}")
        return int(self.show("ExecMainStatus"))

    def wait(self) -> int:
        """Wait until systemd does not start it again; gives the exit status."""
        wait_until(lambda: self.show("ActiveState") in {"failed", "inactive"}, "it stays down")
        return int(self.show("ExecMainStatus"))

    def show(self, what: str) -> str:
        """A property of the unit."""
        return self.machine.do(f"systemctl show --value -p {what} {self.unit}").strip()

    @property
    def pid(self) -> int:
        """Process id of the main process, on the machine; 0 while there is none."""
        return int(self.show("MainPID"))

    @property
    def is_running(self) -> bool:
        """Whether systemd runs it, or is about to do so again; asked at most once a second."""
        if time.monotonic() > self._ask_at:
            self._is_running = self.show("ActiveState") in {"active", "activating", "reloading"}
            self._ask_at = time.monotonic() + 1
        return self._is_running

    def journal(self) -> str:
        """What it said since the machine booted."""
        return self.machine.do(f"journalctl -b -o cat -u {self.unit}")

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the journal."""
        return "\n".join(self.journal().splitlines()[-lines:])

    def owners(self) -> set[int]:
        """Whom the files of the landing belong to."""
        return {os.lstat(path).st_uid for path in (self.root, *self.root.rglob("*"))}
