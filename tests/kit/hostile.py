"""A disk and a clock that misbehave on request, preloaded into a daemon.

`Hostile` builds ``hostile.c`` and gives the environment for `kit.daemon.Daemon`; the
attributes it sets take effect in the running process at once. Only fsync, writes and the
wall clock of processes with that environment change; a daemon's children do not inherit it.
"""

import mmap
import struct
import subprocess
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("hostile.c")
_FIELDS: Final = (
    "sync_delay_us", "sync_fails", "no_space", "clock_offset_ns", "sync_count", "fail_count",
)  # fmt: skip
_SIZE: Final = 8


class Hostile:
    """Controls the misbehaviour of one daemon.

    Args:
        directory: gets the library and the control file.
        root: of the landing; other files are left alone.
    """

    def __init__(self, directory: Path, root: Path) -> None:
        self._root = root
        self._library = directory / "hostile.so"
        self._file = directory / "hostile.control"
        command = ["gcc", "-O1", "-shared", "-fPIC", "-o", str(self._library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self._file.write_bytes(bytes(_SIZE * len(_FIELDS)))
        self._file.chmod(0o666)
        with self._file.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _SIZE * len(_FIELDS))

    @property
    def environment(self) -> dict[str, str]:
        """Variables for the daemon's process."""
        return {
            "LD_PRELOAD": str(self._library),
            "HOSTILE_CONTROL": str(self._file),
            "HOSTILE_ROOT": str(self._root.resolve()),
        }

    def _set(self, name: str, value: int) -> None:
        struct.pack_into("=q", self._page, _SIZE * _FIELDS.index(name), value)

    def _get(self, name: str) -> int:
        value: int = struct.unpack_from("=q", self._page, _SIZE * _FIELDS.index(name))[0]
        return value

    def behave(self) -> None:
        """Everything as it should be."""
        for name in ("sync_delay_us", "sync_fails", "no_space", "clock_offset_ns"):
            self._set(name, 0)

    def slow_sync(self, seconds: float) -> None:
        """Every fsync takes so long from now on."""
        self._set("sync_delay_us", int(seconds * 1e6))

    def fail_sync(self, after: int) -> None:
        """The fsync of that number from now, from 1, fails with EIO."""
        self._set("sync_fails", after)

    def fill_disk(self, *, is_full: bool) -> None:
        """Every write fails with ENOSPC, or none."""
        self._set("no_space", int(is_full))

    def leap(self, seconds: float) -> None:
        """The wall clock is so far off."""
        self._set("clock_offset_ns", int(seconds * 1e9))

    @property
    def sync_count(self) -> int:
        """How many times a file of the landing was synced."""
        return self._get("sync_count")

    @property
    def fail_count(self) -> int:
        """How many calls were failed."""
        return self._get("fail_count")
