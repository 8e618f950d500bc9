"""Change the commit log of a landing in a test: entries are put in or taken out, and hashed anew."""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gaussdecode.model.entry import FIRST_PREVIOUS, CommitEntry
from gaussdecode.model.landing import EntryKind
from gaussdecode.spark.log.landing import Landing


def read(root: Path) -> list[CommitEntry]:
    """All entries."""
    of = Landing(root)
    return list(of.entries(of.first_n, of.last_n))


def write(root: Path, entries: Sequence[CommitEntry]) -> list[CommitEntry]:
    """Replace the log; entries are numbered from 0."""
    shutil.rmtree(root / "commits")
    (root / "commits").mkdir()
    return append(root, entries, FIRST_PREVIOUS, 0)


def append(
    root: Path, entries: Sequence[CommitEntry], previous: str, first: int
) -> list[CommitEntry]:
    """Add entries to a log that ends with an entry of a hash."""
    found = []
    for n, entry in enumerate(entries, first):
        made = dataclasses.replace(entry, n=n, previous=previous, hash="").sealed()
        path = root / "commits" / f"{n:020d}.json"
        path.with_suffix(".tmp").write_bytes(made.to_bytes())
        path.with_suffix(".tmp").rename(path)
        previous = made.hash
        found.append(made)
    return found


def note(like: CommitEntry, kind: EntryKind, extra: dict[str, Any]) -> CommitEntry:
    """An entry without files, at the position of another one."""
    return CommitEntry(
        n=0, kind=kind, previous=FIRST_PREVIOUS, positions=like.positions,
        committed_time=like.committed_time, mtime_ms=like.mtime_ms, extra=extra,
    )  # fmt: skip


def moved(entry: CommitEntry, *, epoch: int = 0, lsn: int | None = None) -> CommitEntry:
    """The entry so many epochs later, perhaps at another LSN."""
    change: Callable[[Any], Any] = lambda of: dataclasses.replace(  # noqa: E731
        of, epoch=of.epoch + epoch, lsn=of.lsn if lsn is None else lsn
    )
    return dataclasses.replace(
        entry, positions={name: change(of) for name, of in entry.positions.items()}
    )
