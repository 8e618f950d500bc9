"""Decide which files go to the mirror, under which names, and which may be removed here. Pure.

The mirror has the tree of the landing: the same paths, the same bytes. In addition it has numbered copies
of the daemon's files beside the log (`numbered`). It never has an unfinished file.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Self

from gaussdecode.land.names import (
    COMPACT,
    DATA,
    SCHEMAS,
    TRANSACTIONS,
    checkpoint_range,
    data_number,
    entry_number,
)
from gaussdecode.land.snapshots import FINGERPRINTS, LEDGER
from gaussdecode.land.snapshots import ROOT as SNAPSHOTS
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile, PreparedFile
from gaussdecode.model.seal import NewerFormatError, canonical_json, read_sealed, sealed

KEPT_TRANSACTIONS: Final = 256
"""Entries whose list of transactions stays longer than their rows, for comparing what a server
sends again; arbitrary."""

NUMBERED: Final = (LEDGER, FINGERPRINTS)
"""Files below ``snapshots/`` of which the mirror has numbered copies."""

_COPY: Final = re.compile(r"([a-z]+)-([0-9]{20})-([0-9]{8})(\.json)")


@dataclasses.dataclass(frozen=True, slots=True)
class MirrorState:
    """What a landing knows of its mirror; content of ``mirror.json``.

    Attributes:
        url: URL of the mirror.
        shipped: number of the newest entry that is known to be there; -1 for none.
        removed: data files of entries up to this number may be there only.
        swept: those up to this number are gone here.
        is_claimed: whether this host has said in the log that it goes on with it.
    """

    url: str
    shipped: int = -1
    removed: int = -1
    swept: int = -1
    is_claimed: bool = True

    def to_bytes(self) -> bytes:
        """Give the content of the file."""
        return sealed(canonical_json(dataclasses.asdict(self)))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Read the file.

        Raises:
            ValueError: it is not what was written.
            NewerFormatError: it is of a newer program.
        """
        record: dict[str, Any] = read_sealed(raw)  # Any: JSON
        try:
            return cls(**record)
        except TypeError:
            raise NewerFormatError("it has other fields than this program knows") from None


Shipped = LandingFile | PreparedFile
"""A file that an entry names."""


def batches(files: Iterable[Shipped], most_files: int, most_bytes: int) -> Iterator[list[Shipped]]:
    """Divide files into those that are put at the same time: each is in memory until it is put."""
    batch: list[Shipped] = []
    for file in files:
        size = sum(of.bytes for of in batch) + file.bytes
        if batch and (size > most_bytes or len(batch) == most_files):
            yield batch
            batch = []
        batch.append(file)
    if batch:
        yield batch


def schema_paths(entry: CommitEntry) -> list[str]:
    """Paths of the schemas that an entry needs, each once."""
    used = [(file.table, file.schema_id) for file in entry.files]
    used += [(change.table, change.schema_id) for change in entry.schema_changes]
    return list(dict.fromkeys(f"{SCHEMAS}/{table}/{schema_id}.json" for table, schema_id in used))


def doomed_files(entries: Iterable[CommitEntry], *, of_transactions: bool) -> Iterator[str]:
    """Paths of the local files of entries that may go: the lists of transactions, or all others."""
    for entry in entries:
        for file in entry.files:
            if (file.table == TRANSACTIONS) is of_transactions:
                yield file.path


def needed_prepared(entries: Iterable[CommitEntry]) -> set[str]:
    """Paths of the prepared transactions' files that entries name, as begun or as ended."""
    return {path for of in entries for path in (*(file.path for file in of.prepared), *of.ended)}


def is_later(path: str, n: int) -> bool:
    """Whether a path is a data file's that no entry before number `n` can name."""
    number = data_number(path.rpartition("/")[2])
    return number is not None and number >= n and path.startswith((f"{DATA}/", f"{COMPACT}/"))


def newest_entry(names: Iterable[str]) -> int:
    """Highest number among names in ``commits/``; -1 for none."""
    numbers = (entry_number(name) for name in names)
    return max((n for n in numbers if n is not None), default=-1)


def checkpoints(names: Iterable[str]) -> list[tuple[int, int, str]]:
    """First and last number and name of each checkpoint among names, rising."""
    found = ((checkpoint_range(name), name) for name in names)
    return sorted((*numbers, name) for numbers, name in found if numbers is not None)


def last_floor(entries: Iterable[CommitEntry]) -> int:
    """The floor that the last retention entry among entries sets; -1 where there is none."""
    floors = [entry.floor for entry in entries if entry.kind is EntryKind.RETENTION]
    return max((floor for floor in floors if floor is not None), default=-1)


def numbered_path(name: str, n: int, serial: int) -> str:
    """Path of a file as it was with entry `n`; `serial` tells several of one entry apart."""
    stem, _, suffix = name.partition(".")
    return f"{SNAPSHOTS}/{stem}-{n:020d}-{serial:08d}.{suffix}"


def numbered_copies(name: str, names: Iterable[str]) -> list[tuple[int, int]]:
    """Entry and serial of each copy of a file among names, rising."""
    found = (_COPY.fullmatch(each) for each in names)
    return sorted((int(of[2]), int(of[3])) for of in found if of and of[1] + of[4] == name)


def is_numbered_copy(name: str) -> bool:
    """Whether a name is that of such a copy."""
    return any(numbered_copies(of, [name]) for of in NUMBERED)
