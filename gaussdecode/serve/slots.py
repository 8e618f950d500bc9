"""Virtual slots: how far each client has confirmed, kept beside the landing.

    <root>/serve/slots/<name>.json     one sealed object each, replaced by rename after fsync
    <root>/serve/.lock                 held by the one server of the landing

A confirmed position never goes back. It is on disk within `SAVE_SECONDS`, and before a client leaves its slot. After a
crash in between, a client that names no position gets these seconds again; one that names its own does not.
The daemon reads `n` of these files: they hold retention back, within a bound (`serve.kept`).
"""

import dataclasses
import fcntl
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gaussdecode.errors import ConfigError, DiskError
from gaussdecode.land.names import LOCK, SERVE
from gaussdecode.model.seal import (
    NewerFormatError,
    canonical_json,
    check_version,
    read_sealed,
    sealed,
)
from gaussdecode.serve.errors import ServeError

SAVE_SECONDS: Final = 1.0
_SLOTS: Final = "slots"
_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")
_VERSION: Final = 1
_MODE: Final = 0o640
_LOCK_TRIES: Final = 10
_LOCK_SECONDS: Final = 0.02
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclasses.dataclass(slots=True)
class Slot:
    """One virtual slot.

    Attributes:
        name: of letters, digits and underscores.
        plugin: output plug-in.
        owner: user that created it; empty where there are no users.
        database: of its creation; where the landing has several sources, the one that it is of.
        landing_id: landing that its position is of.
        n: entries before this one are confirmed.
        epoch: of `lsn`.
        lsn: transactions that end up to here are confirmed; a CSN where the landing is in the order of CSNs.
        created: seconds since 1970.
        used: when a client last confirmed or left it.
        is_temporary: it ends with the session, and is not kept.
        user: who streams from it now; None for nobody.
        process: number of that session.
        owner_process: session that created it, in which a temporary one ends.
        is_active: a client streams from it; kept, for those who look from beside the server.
        is_dirty: it changed since it was written.
    """

    name: str
    plugin: str
    owner: str
    database: str
    landing_id: str
    n: int
    epoch: int
    lsn: int
    created: float = 0.0
    used: float = 0.0
    is_temporary: bool = False
    user: str | None = None
    process: int | None = None
    owner_process: int | None = None
    is_active: bool = False
    is_dirty: bool = False

    def confirm(self, n: int, epoch: int, lsn: int) -> None:
        """Move on; a position before the confirmed one changes nothing."""
        if (epoch, lsn) < (self.epoch, self.lsn):
            return
        is_moved = (n, epoch, lsn) != (self.n, self.epoch, self.lsn)
        self.n, self.epoch, self.lsn = max(n, self.n), epoch, lsn
        self.is_dirty |= is_moved
        self.used = time.time()

    def stream(self, *, is_active: bool) -> None:
        """Note that a client begins or ends to stream."""
        self.is_active = is_active
        self.is_dirty = True

    def record(self) -> dict[str, Any]:  # Any: JSON
        """What is kept of it."""
        names = (
            "name", "plugin", "owner", "database", "landing_id", "n", "epoch", "lsn", "created", "used",
            "is_active",
        )  # fmt: skip
        return {"version": _VERSION, **{name: getattr(self, name) for name in names}}


def _is_locked(handle: int) -> bool:
    """Lock a file; who only looks whether it is locked has it for a moment (`serve.kept`)."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(_LOCK_SECONDS)
        else:
            return True
    return False


class Slots:
    """All slots of a landing; for one thread, but `write` may run in another.

    A slot whose file is damaged keeps its name until it is dropped; the others go on.

    Args:
        root: of the landing.
        landing_id: of the landing; slots of another one are refused.
        most: most slots.

    Attributes:
        damaged: what is wrong with the file of a slot, by its name.

    Raises:
        ConfigError: another server has them.
    """

    def __init__(self, root: Path, landing_id: str, most: int) -> None:
        self._landing_id = landing_id
        self._most = most
        self._place = root / SERVE / _SLOTS
        self._slots: dict[str, Slot] = {}
        self.damaged: dict[str, str] = {}
        self._writing = threading.Lock()
        try:
            self._place.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._lock = os.open(root / SERVE / LOCK, _FLAGS, _MODE)
        except OSError as error:
            raise ConfigError(
                f"{self._place}: {error.strerror}; run as the owner of the landing"
            ) from None
        if not _is_locked(self._lock):
            os.close(self._lock)
            raise ConfigError(f"{root}: another gaussdecode serve has this landing")
        for path in sorted(self._place.iterdir()):
            if path.suffix == ".json" and not path.name.startswith("."):
                try:
                    self._slots[path.stem] = self._read(path)
                except (ConfigError, OSError) as error:
                    self.damaged[path.stem] = str(error)

    def _read(self, path: Path) -> Slot:
        try:
            record = dict(read_sealed(path.read_bytes()))
            check_version(record, _VERSION)
            del record["version"]
            record.pop("csn", None)  # of early versions
            slot = Slot(**{name: value for name, value in record.items() if name != "hash"})
            slot.is_active = False
        except (OSError, TypeError, ValueError, KeyError, RecursionError) as error:
            known = isinstance(error, NewerFormatError | OSError)
            what = str(error) if known else "it is not what was written"
            raise ConfigError(f"{path}: damaged: {what}") from None
        if slot.landing_id != self._landing_id or slot.name != path.stem:
            raise ConfigError(f"{path}: a slot of another landing, or of another name")
        return slot

    def close(self) -> None:
        """Write what changed, and let others have the landing."""
        try:
            self.save()
        finally:
            os.close(self._lock)

    def __iter__(self) -> Iterator[Slot]:
        return iter(sorted(self._slots.values(), key=lambda slot: slot.name))

    def __len__(self) -> int:
        return len(self._slots)

    def get(self, name: str) -> Slot:
        """A slot by its name.

        Raises:
            ServeError: there is none, or its file is damaged.
        """
        slot = self._slots.get(name)
        if slot is None and name in self.damaged:
            raise ServeError(
                "XX001",
                f'replication slot "{name}" cannot be used: {self.damaged[name]}',
                hint="Restore the file from a copy and restart gaussdecode serve; or drop the slot and create it anew.",
            )
        if slot is None:
            raise ServeError("42704", f'replication slot "{name}" does not exist')
        return slot

    def create(self, slot: Slot) -> None:
        """Add a slot, durably unless it is temporary.

        Raises:
            ServeError: the name is wrong or taken, or there are too many.
        """
        if not _NAME.fullmatch(slot.name):
            raise ServeError(
                "42602",
                f'replication slot name "{slot.name[:64]}" is not valid',
                hint="Names have 1 to 63 lower case letters, digits and underscores.",
            )
        if slot.name in self._slots or slot.name in self.damaged:
            raise ServeError("42710", f'replication slot "{slot.name}" already exists')
        if len(self._slots) >= self._most:
            raise ServeError(
                "53400",
                f"all {self._most} replication slots are in use",
                hint="Drop one, or raise serve.slots.",
            )
        slot.created = slot.used = time.time()
        self._slots[slot.name] = slot
        if not slot.is_temporary:
            try:
                with self._writing:
                    self._write(slot.name, sealed(canonical_json(slot.record())))
            except DiskError:
                del self._slots[slot.name]
                raise

    def drop(self, name: str) -> None:
        """Remove a slot that nobody uses, or one whose file is damaged.

        Raises:
            ServeError: there is none, or a session has it.
            DiskError: the file system failed.
        """
        slot = None
        if name not in self.damaged:
            slot = self.get(name)
            self._refuse_active(slot)
        with self._writing:  # no write of it may follow
            if slot is None or not slot.is_temporary:
                path = self._place / f"{name}.json"
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise DiskError(f"{path}: {error.strerror}") from error
                self._sync()
            self._slots.pop(name, None)
            self.damaged.pop(name, None)

    def acquire(self, name: str, user: str, process: int) -> Slot:
        """Take a slot for one session.

        Raises:
            ServeError: there is none, or another session has it.
        """
        slot = self.get(name)
        self._refuse_active(slot)
        slot.user, slot.process = user, process
        return slot

    @staticmethod
    def _refuse_active(slot: Slot) -> None:
        if slot.process is not None:
            raise ServeError(
                "55006", f'replication slot "{slot.name}" is active for PID {slot.process}'
            )

    def release(self, slot: Slot, process: int) -> None:
        """Let others have a slot that a session has; `save` comes first, so that what it confirmed is on disk."""
        if slot.process == process:
            slot.user = slot.process = None

    def save(self) -> None:
        """Write the slots that changed.

        Raises:
            DiskError: the file system failed; they are written at the next call.
        """
        self.write(self.changed())

    def changed(self) -> list[tuple[Slot, bytes]]:
        """Slots that changed since they were written, each with the content of its file."""
        found = []
        for slot in self._slots.values():
            if slot.is_dirty and not slot.is_temporary:
                slot.is_dirty = False
                found.append((slot, sealed(canonical_json(slot.record()))))
        return found

    def write(self, changed: list[tuple[Slot, bytes]]) -> None:
        """Write what `changed` gave; may run in another thread.

        Raises:
            DiskError: the file system failed; these slots are written at the next call.
        """
        failed: DiskError | None = None
        for slot, data in changed:
            try:
                with self._writing:
                    if self._slots.get(slot.name) is slot:  # else it was dropped
                        self._write(slot.name, data)
            except DiskError as error:
                slot.is_dirty = True
                failed = error
        if failed is not None:
            raise failed

    def _write(self, name: str, data: bytes) -> None:
        path = self._place / f"{name}.json"
        hidden = self._place / f".{name}.json"
        try:
            handle = os.open(hidden, _FLAGS, _MODE)
            try:
                with open(handle, "wb", closefd=False) as file:
                    file.write(data)
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(hidden, path)
        except OSError as error:
            raise DiskError(f"{path}: {error.strerror}") from error
        self._sync()

    def _sync(self) -> None:
        try:
            handle = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as error:
            raise DiskError(f"fsync {self._place}: {error.strerror}") from error
