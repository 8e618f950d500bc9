"""Read the commit log of a landing.

Promises entries in order with checked hashes. An entry that retention has removed is an error, and is never
skipped.
"""

import re
from collections.abc import Iterator
from typing import Final

from gaussdecode.errors import LandingError, unreadable
from gaussdecode.model.entry import FIRST_PREVIOUS, CheckpointHeader, CommitEntry, parse_checkpoint
from gaussdecode.spark.log.place import Place, names_in, read_each

_AHEAD: Final = 32  # entries of a store that are asked for together; arbitrary
_ENTRY: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})-(\d{20})\.jsonl")
_REMEDY: Final = "restore it from a copy of this landing"


class Log:
    """The log below a root.

    Attributes:
        root: directory, or URL of a mirror.
    """

    def __init__(self, root: Place) -> None:
        self.root = root

    def _numbers(self) -> list[int]:
        found = map(_ENTRY.fullmatch, names_in(self.root / "commits"))
        return sorted(int(match[1]) for match in found if match)

    def _checkpoints(self) -> list[tuple[int, int, str]]:
        directory = "commits/checkpoints"
        found = map(_CHECKPOINT.fullmatch, names_in(self.root / directory))
        return sorted((int(m[1]), int(m[2]), f"{directory}/{m[0]}") for m in found if m)

    @property
    def last_n(self) -> int:
        """Number of the newest entry; -1 in an empty log."""
        return max(self._numbers(), default=-1)

    @property
    def first_n(self) -> int:
        """Number of the oldest entry that is still there."""
        held = [first for first, _, _ in self._checkpoints()]
        return min([*self._numbers(), *held], default=0)

    def entries(self, first: int, last: int) -> Iterator[CommitEntry]:
        """Entries `first` to `last` in order, each checked against the one before.

        Raises:
            LandingError: an entry is missing, damaged, or does not follow the one before; the text
                says whether retention removed it.
        """
        previous: CommitEntry | None = None
        for entry in self._raw_entries(first, last):
            if previous is not None and entry.previous != previous.hash:
                raise LandingError(f"{self.root}: entry {entry.n} does not follow {previous.n}")
            if entry.n == 0 and entry.previous != FIRST_PREVIOUS:
                raise LandingError(f"{self.root}: entry 0 follows another one")
            previous = entry
            yield entry

    def _raw_entries(self, first: int, last: int) -> Iterator[CommitEntry]:
        n = first
        while n <= last:
            # The single files first: an entry goes into its checkpoint before its file goes.
            paths = [
                self.root / f"commits/{k:020d}.json" for k in range(n, min(n + _AHEAD, last + 1))
            ]
            for path, raw in zip(paths, read_each(paths), strict=True):
                if raw is None:
                    break
                yield _parse(raw, str(path))
                n += 1
            else:
                continue
            held = next((c for c in self._checkpoints() if c[0] <= n <= c[1]), None)
            if held is None:
                raise self._missing(n)
            for entry in _block(self.root / held[2]):
                if n <= entry.n <= last:
                    yield entry
                    n = entry.n + 1

    def _missing(self, n: int) -> LandingError:
        first = self.first_n
        if n < first:
            return LandingError(
                f"{self.root}: entry {n} was removed by retention, the log begins at {first}; "
                "apply to a new target after a snapshot, or accept the gap"
            )
        return LandingError(f"{self.root}: entry {n} is missing; restore it from a copy")

    def entry(self, n: int) -> CommitEntry:
        """One entry."""
        return next(self.entries(n, n))

    def hash_at(self, n: int) -> str:
        """Hash of an entry, which proves everything up to it; empty if retention removed it."""
        if n < 0:
            return FIRST_PREVIOUS
        first = self.first_n
        if n < first:
            return self.entry(first).previous if n == first - 1 else ""
        return self.entry(n).hash

    def schemas_at_checkpoint(self) -> tuple[dict[str, str], int]:
        """By `schema_key`, the schema_id of rows after the newest checkpoint, and the checkpoint's last entry.

        Raises:
            LandingError: it cannot be read.
        """
        held = self._checkpoints()
        if not held:
            return {}, self.first_n - 1
        return dict(_header(self.root / held[-1][2]).schemas), held[-1][1]


def _parse(raw: bytes, where: str) -> CommitEntry:
    try:
        return CommitEntry.from_bytes(raw)
    except ValueError as error:
        raise unreadable(where, error, _REMEDY) from error


def _header(path: Place) -> CheckpointHeader:
    try:
        return parse_checkpoint(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        raise unreadable(path, error, _REMEDY) from error


def _block(path: Place) -> Iterator[CommitEntry]:
    try:
        _, lines = parse_checkpoint(path.read_bytes())
    except (OSError, ValueError) as error:
        raise unreadable(path, error, _REMEDY) from error
    for index, line in enumerate(lines):
        yield _parse(line, f"{path}, entry {index}")
