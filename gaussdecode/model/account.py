"""Count for each entry of the commit log what came in, what landed and what was left out.

The rule, for every stretch of the stream between two positions and for every kind: the count that the
reader framed equals the count that landed plus the count that was left out, each with a reason. Kinds are
``transactions``, rows by operation (``I``, ``U``, ``D``, ``R``), ``T`` (tables emptied) and ``messages``; a kind
without any is not named. Knows no files and no streams.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self

from gaussdecode.model.landing import LandingFile, SourcePosition

TRANSACTIONS: Final = "transactions"
MESSAGES: Final = "messages"
KINDS: Final = frozenset({TRANSACTIONS, "I", "U", "D", "T", "R", MESSAGES})
_BY_TABLE: Final = {"gd_transactions": TRANSACTIONS, "gd_messages": MESSAGES, "gd_ddl": MESSAGES}

RESENT: Final = "resent"
ORIGIN: Final = "origin"
USER: Final = "user"
BEFORE_START: Final = "before-start"
FILTERED: Final = "filtered"
NOT_WANTED: Final = "not-wanted"
EMPTY: Final = "empty"
ABORTED: Final = "aborted"
SPECULATIVE: Final = "speculative"
REASONS: Final[dict[str, str]] = {
    RESENT: "the server sent again what had landed",
    ORIGIN: "only-local, and the transaction has an origin",
    USER: "exclude-users has the transaction's user",
    BEFORE_START: "before start-position",
    FILTERED: "of a table that white-table-list does not name, or that is in quarantine",
    NOT_WANTED: "of a table that is left out of the landing",
    EMPTY: "skip-empty-xacts, and the transaction has no rows",
    ABORTED: "streamed while its transaction was open, which was rolled back, or a savepoint of it",
    SPECULATIVE: "inserted by an upsert that another session overtook, and taken back by it",
}

Counts = Mapping[str, int]
_Json = Any  # decoded JSON: checked field by field below


def add(counts: Iterable[Counts]) -> dict[str, int]:
    """Add counts up; kinds of which there is none are not in the sum."""
    total: dict[str, int] = {}
    for each in counts:
        for kind, count in each.items():
            total[kind] = total.get(kind, 0) + count
    return {kind: total[kind] for kind in sorted(total) if total[kind]}


def say(counts: Counts) -> str:
    """Spell counts for people."""
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())) or "nothing"


def counted(table: str, rows: int, ops: Counts) -> dict[str, int]:
    """What rows of a table count as: those of the system tables are not rows of the source."""
    kind = _BY_TABLE.get(table)
    return dict(ops) if kind is None else {kind: rows}


def counted_files(files: Iterable[LandingFile]) -> dict[str, int]:
    """What the files of an entry hold, by kind."""
    return add(counted(file.table, file.rows, file.ops) for file in files)


def files_of(files: Iterable[LandingFile], source: str) -> list[LandingFile]:
    """Those with rows of a source; files that name none are the only source's."""
    return [file for file in files if file.source in (None, source)]


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """The sums of one stretch of the stream.

    Attributes:
        since: epoch and LSN where the stretch begins: the position of the entry before.
        until: end of the stretch: the position of this entry.
        framed: counts that the reader found in the stream.
        landed: counts that the collector handed over to be written.
        left_out: counts of the rest, by reason.
    """

    since: tuple[int, int]
    until: tuple[int, int]
    framed: Counts
    landed: Counts
    left_out: Mapping[str, Counts] = dataclasses.field(default_factory=dict)

    def wrong(self, files: Counts) -> str | None:
        """Say where the sums do not add up; None when they do.

        Args:
            files: counts of the entry's files, by the process that wrote or read them.
        """
        where = f"from {_spell(self.since)} to {_spell(self.until)}"
        if add([self.landed]) != add([files]):
            return f"{where} {say(self.landed)} were handed over, the files hold {say(files)}"
        found = add([self.landed, *self.left_out.values()])
        if found != add([self.framed]):
            out = "; ".join(f"{why}: {say(n)}" for why, n in sorted(self.left_out.items()) if n)
            return (
                f"{where} the reader framed {say(self.framed)}, of which {say(self.landed)} landed "
                f"and were left out: {out or 'nothing'}"
            )
        return None

    def wrong_place(self, before: SourcePosition | None, after: SourcePosition) -> str | None:
        """Say how the stretch does not reach from one position to the next; None if it does."""
        start = self.since if before is None else (before.epoch, before.lsn)
        end = (after.epoch, after.lsn)
        if (self.since, self.until) == (start, end):
            return None
        return (
            f"its sums are of {_spell(self.since)} to {_spell(self.until)}, its stretch of the "
            f"stream is {_spell(start)} to {_spell(end)}"
        )

    def to_record(self) -> dict[str, _Json]:
        """Make it fit for JSON."""
        return {
            "since": list(self.since),
            "until": list(self.until),
            "framed": dict(self.framed),
            "landed": dict(self.landed),
            "left_out": {why: dict(n) for why, n in self.left_out.items() if n},
        }

    @classmethod
    def from_record(cls, record: dict[str, _Json]) -> Self:
        """Read what `to_record` wrote.

        Raises:
            ValueError: it is not that.
        """
        return cls(
            since=_pair(record["since"]),
            until=_pair(record["until"]),
            framed=_counts(record["framed"]),
            landed=_counts(record["landed"]),
            left_out={str(why): _counts(counts) for why, counts in record["left_out"].items()},
        )


def _spell(place: tuple[int, int]) -> str:
    epoch, lsn = place
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X} (epoch {epoch})"


def _pair(value: _Json) -> tuple[int, int]:
    epoch, lsn = value
    return _whole(epoch), _whole(lsn)


def _counts(record: _Json) -> dict[str, int]:
    if not isinstance(record, dict) or not KINDS.issuperset(record):
        raise ValueError(f"not counts by kind: {record!r}")
    return {kind: _whole(count) for kind, count in record.items()}


def _whole(value: _Json) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"not a whole number from 0: {value!r}")
    return value
