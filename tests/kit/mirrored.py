"""A landing and its mirror in a directory, as the thread of a daemon treats them."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from obstore.store import ObjectStore

from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files
from gaussdecode.land.mirror.restore import Told, restore
from gaussdecode.land.mirror.shipper import Shipper
from gaussdecode.land.retention import retain
from gaussdecode.land.space import SpaceWait
from gaussdecode.objects.cloud import CloudStore
from gaussdecode.settings.landing_sections import MirrorConfig
from kit.landrun import BLOCK, IDENTITY, Landing, ticking

_T = TypeVar("_T")


class Cut(BaseException):
    """The process is gone."""


class CutStore(CloudStore):
    """A store whose user dies at a request: before it is done, or after."""

    def __init__(
        self, settings: MirrorConfig, at: int | None = None, *, after: bool = False
    ) -> None:
        super().__init__(settings)
        self.left = at
        self.after = after
        self.requests = 0

    def _do(self, what: str, path: str, work: Callable[[ObjectStore], _T]) -> _T:
        self.requests += 1
        if self.left is not None:
            self.left -= 1
        is_cut = self.left is not None and self.left < 0
        if is_cut and not self.after:
            raise Cut
        result = super()._do(what, path, work)
        if is_cut:
            raise Cut
        return result


def settings(directory: Path) -> MirrorConfig:
    """A mirror in a directory: puts are conditional there too."""
    return MirrorConfig(url=f"file://{directory}/mirror")


def land(root: Path, transactions: int, token: str = "first", **changes: object) -> None:
    """Land transactions up to a number; what is there already is left out."""
    root.mkdir(exist_ok=True)
    landing = Landing(Files(root), token, transactions=transactions, **changes)  # type: ignore[arg-type]  # as given
    landing.run()
    assert not landing.errors


def reopen(root: Path, token: str = "second") -> CommitLog:
    """Open a landing that is there."""
    return CommitLog.open(Files(root), IDENTITY, now=ticking(), writer=token, block=BLOCK)


def ship_all(log: CommitLog, store: CloudStore, *, keep: float | None = None) -> Shipper:
    """Do what the thread of the daemon does, until nothing is left to do."""
    shipper = Shipper(log, store)
    if not shipper.is_claimed:
        shipper.prepare()
        shipper.claim()
    shipper.prepare()
    while (entry := shipper.ship()) is not None:
        shipper.follow(entry)
    shipper.ship_numbered()
    shipper.note()
    if keep is not None:
        shipper.remove_local(keep, 0.0)
        shipper.remove_local(keep, keep)
    return shipper


def expire(log: CommitLog, store: CloudStore) -> None:
    """Give up all that may be, as the daemon does: nothing that the mirror has not got."""
    retain(log, dt.timedelta(0), Shipper(log, store).shipped)


def fetch(root: Path, store: CloudStore, told: Told = lambda *_: None) -> int:
    """Begin a landing from a mirror, as a new host does."""
    root.mkdir(exist_ok=True)
    files = Files(root)
    try:
        files.lock()
        return restore(Disk(files, SpaceWait(), "fetch"), store, told)
    finally:
        files.close()
