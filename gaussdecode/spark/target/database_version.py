"""Describe one version of all tables of a target: what a file of ``database`` holds."""

import dataclasses
from typing import Any, Self

Json = dict[str, Any]  # decoded JSON


@dataclasses.dataclass(frozen=True, slots=True)
class DatabaseVersion:
    """One version of all tables.

    Attributes:
        k: its number, from 1.
        n: entry up to which all its tables are complete.
        tables: version of each table, by directory.
        is_complete: whether it includes every table of the landing.
        epoch: epoch of the source's position at entry n.
        lsn: LSN of that position.
        csn: CSN of that position, or None.
        commit_time: commit time of the newest transaction, in ISO form, or None.
        accepted_gaps: gap entries that were accepted.
        suspects: entries that may be incomplete.
        quarantined: entry at which a table stopped, by directory.
        withheld: of those, names under which rows may have been held back that are another table's;
            None if unknown.
        known: of those in quarantine, epoch and OID of the tables whose OID is known, and which no
            snapshot has read under another name since.
        history: whether new tables get history.
        changelog: partition column of the changelog that new tables get; empty for no changelog.
        vectors: files may have deletion vectors.
        stopped: stopped tables, by directory: fields of `decided.Stop`.
        created: time of creation.
        part: CSN up to which entry n + 1 is applied too; 0 for nothing.
        hash: hash of entry n; empty in versions of early releases.
        renamed: tables that are in the directory of another name: their titles, by directory.
    """

    k: int
    n: int
    tables: dict[str, int]
    is_complete: bool
    epoch: int = 0
    lsn: int = 0
    csn: int | None = None
    commit_time: str | None = None
    accepted_gaps: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    quarantined: dict[str, int] = dataclasses.field(default_factory=dict)
    history: bool = False
    changelog: str = ""
    vectors: bool = False
    stopped: dict[str, Json] = dataclasses.field(default_factory=dict)
    created: str = ""
    part: int = 0
    hash: str = ""
    renamed: dict[str, str] = dataclasses.field(default_factory=dict)
    withheld: list[str] | None = None
    known: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)

    @property
    def reach(self) -> tuple[int, int]:
        """How far it is applied: entry, and CSN in the next entry."""
        return (self.n, self.part)

    @classmethod
    def from_record(cls, record: Json) -> Self:
        """Read a record that `dataclasses.asdict` made."""
        record = {key: value for key, value in record.items() if key != "version"}
        record["accepted_gaps"] = tuple(record["accepted_gaps"])
        record["suspects"] = tuple(record["suspects"])
        known = record.get("known", {})
        record["known"] = {table: (int(epoch), int(oid)) for table, (epoch, oid) in known.items()}
        return cls(**record)

    def to_record(self) -> Json:
        """What `from_record` reads; without empty fields that earlier versions cannot read."""
        record = dataclasses.asdict(self)
        if not self.renamed:
            del record["renamed"]
        if not self.quarantined:
            del record["withheld"]
        if not self.known:
            del record["known"]
        return record
