"""Entries of the commit log: what they say, and their exact bytes.

An entry is one line of canonical JSON (sorted keys, no spaces, ASCII) that ends with its
own hash (`model.seal`), which the next entry carries as ``previous``. A checkpoint holds the
entries of one block, after a header line, sealed in the same way, with the state of the log
after its last entry.
Given bytes or values; promises that bytes and entry name each other; knows no files.
"""

import dataclasses
import datetime as dt
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, Final, Self

from gaussdecode.model.account import Account
from gaussdecode.model.csns import Csns
from gaussdecode.model.landing import (
    EntryKind,
    LandingFile,
    Position,
    PreparedFile,
    Replacement,
    SchemaChange,
    SourcePosition,
    Truncate,
)
from gaussdecode.model.seal import NewerFormatError, canonical_json, check_version, hash_of, sealed

VERSION: Final = 1
HEADER_VERSION: Final = 2
"""Version of checkpoint headers; version 1 can be read too."""
PREPARED_VERSION: Final = 3
"""The version of entries that name prepared transactions: readers that do not know them must not go on."""
# Sums are in `extra`, because readers refuse an unknown field and are not upgraded in the same minute as
# the daemon.
SUMS: Final = "sums"
SUMS_BY_SOURCE: Final = "sums_by_source"
PREPARED: Final = "prepared"
ENDED: Final = "ended"
CSNS: Final = "csns"
IN_ORDER: Final = "in_order"
SETTLED: Final = "settled"
WITHOUT_ROWS: Final = "without_rows"
BEGINS: Final = "begins"
FIRST_PREVIOUS: Final = "0" * 64
"""Previous hash of entry 0."""

_HASH: Final = re.compile(r"[0-9a-f]{64}")
_CHECKSUM: Final = re.compile(r"sha256:[0-9a-f]{64}")
_PATH: Final = re.compile(r"(data|compact)(/[A-Za-z0-9_%~=-][A-Za-z0-9_.%~=-]*){2,}\.parquet")
_PREPARED: Final = re.compile(r"prepared/[0-9a-f]{16}-[0-9]+-[0-9a-f]{12}\.prepared")
_HIDDEN: Final = re.compile(r"\.gd-[A-Za-z0-9_.-]+")

_Json = Any  # decoded JSON: checked field by field below


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommitEntry:
    """One entry of the commit log.

    Attributes:
        n: number in the log, from 0 without holes; the only progress number of readers.
        kind: kind of the entry.
        previous: hash of entry ``n - 1``.
        positions: per source, up to where everything is complete for all tables.
        commit_time: commit time of the newest transaction in it, or None where there is none.
        committed_time: when it was written, by the clock of the daemon.
        mtime_ms: modification time of the first file of each table, in milliseconds;
            the next files of the table follow one millisecond apart.
        files: files in position order per table.
        hidden: per file, the name it had in its directory before it was committed.
        truncates: tables emptied.
        schema_changes: tables whose rows change over to another schema.
        replaced: ``compact`` only: which older files each file stands for.
        floor: ``retention`` only: entries up to this number may be gone.
        anchor: ``retention`` only: hash of entry ``floor``.
        extra: JSON that only the writer of the kind understands; under ``sums`` the account,
            where programs that know of no sums pass over it, under ``sums_by_source`` one for each
            of several sources; under ``prepared`` the files of
            prepared transactions that it names, under ``ended`` paths of those that ended;
            under ``csns`` the least and the greatest CSN of its transactions; under ``in_order``
            true where rows stand in order in its files, and these in order by table and source;
            under ``begins`` true where it says no more than where the landing begins.
        hash: hash of this entry; empty until it is sealed.
    """

    n: int
    kind: EntryKind
    previous: str
    positions: dict[str, SourcePosition]
    committed_time: dt.datetime
    mtime_ms: int
    commit_time: dt.datetime | None = None
    files: tuple[LandingFile, ...] = ()
    hidden: tuple[str, ...] = ()
    truncates: tuple[Truncate, ...] = ()
    schema_changes: tuple[SchemaChange, ...] = ()
    replaced: tuple[Replacement, ...] = ()
    floor: int | None = None
    anchor: str | None = None
    extra: dict[str, _Json] = dataclasses.field(default_factory=dict)
    hash: str = ""

    @property
    def account(self) -> Account | None:
        """The sums of its stretch of the stream; None where there are none, or several."""
        record = self.extra.get(SUMS)
        return None if record is None else Account.from_record(record)

    @property
    def accounts(self) -> dict[str, Account]:
        """The sums of the stretch of each source; none where there are none."""
        records = self.extra.get(SUMS_BY_SOURCE)
        if records is not None:
            return {name: Account.from_record(record) for name, record in records.items()}
        account = self.account
        if account is None:
            return {}
        (source,) = self.positions
        return {source: account}

    @property
    def watermark(self) -> int | None:
        """The CSN that all of its sources' positions have; None where they have several or none."""
        csns = {position.csn for position in self.positions.values()}
        return csns.pop() if len(csns) == 1 else None

    @property
    def prepared(self) -> tuple[PreparedFile, ...]:
        """Prepared transactions that are in files from this entry on."""
        return tuple(_parse_prepared(record) for record in self.extra.get(PREPARED, ()))

    @property
    def ended(self) -> tuple[str, ...]:
        """Paths of such files whose transactions ended, or will be sent again."""
        return tuple(_matching(_PREPARED, path) for path in self.extra.get(ENDED, ()))

    @property
    def is_in_order(self) -> bool:
        """Whether the files of each table and source, read one after the other, give rows in order."""
        return self.extra.get(IN_ORDER) is True

    @property
    def csns(self) -> Csns | None:
        """The least and greatest CSN of its transactions; None where nothing is said."""
        record = self.extra.get(CSNS)
        return None if record is None else Csns.from_record(record)

    def to_bytes(self) -> bytes:
        """Give the exact bytes of the entry, its hash included."""
        return sealed(canonical_json(_to_record(self)))

    def sealed(self) -> tuple[Self, bytes]:
        """Give the same entry with its hash filled in, and its exact bytes."""
        raw = self.to_bytes()
        return dataclasses.replace(self, hash=hash_of(raw)), raw

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Read an entry and check its hash and every field.

        Args:
            raw: exactly what `to_bytes` gave.

        Raises:
            ValueError: torn or altered; the text says which, in lower case without full stop.
            NewerFormatError: it is whole, and of a newer program.
        """
        found = hash_of(raw)
        record = json.loads(raw)
        check_version(record, VERSION)
        try:
            entry = cls(**_from_record(record), hash=found)
            _ = entry.accounts, entry.prepared, entry.ended, entry.csns
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NewerFormatError(f"a field is missing or wrong: {error}") from error
        if entry.to_bytes() != raw:
            raise NewerFormatError("it has unknown fields")
        return entry


def format_time(time: dt.datetime) -> str:
    """Spell an aware time in UTC with microseconds."""
    return time.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def parse_time(text: str) -> dt.datetime:
    """Read what `format_time` wrote."""
    time = dt.datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"a time without zone: {text!r}")
    return time


def position_record(position: SourcePosition) -> dict[str, _Json]:
    """Make a source's position fit for JSON."""
    return _given(dataclasses.asdict(position), "until")


def parse_position(record: dict[str, _Json]) -> SourcePosition:
    """Read what `position_record` wrote."""
    csn, until = record["csn"], record.get("until")
    return SourcePosition(
        epoch=_whole(record["epoch"]),
        timeline=_whole(record["timeline"]),
        lsn=_whole(record["lsn"]),
        csn=None if csn is None else _whole(csn),
        until=None if until is None else _whole(until),
    )


def _given(record: dict[str, _Json], name: str) -> dict[str, _Json]:
    """Leave a field out that says nothing: older programs know none of it."""
    return {key: value for key, value in record.items() if key != name or value is not None}


# A checkpoint: header line, then one line per entry, each its exact bytes.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHeader:
    """State of the log after the last entry of a checkpoint.

    Attributes:
        first: number of the first entry in it.
        last: number of the last entry in it.
        previous: hash of entry ``first - 1``.
        hash: hash of entry ``last``.
        positions: positions as of entry ``last``.
        schemas: schemas by `schema_key`, the schema_id its rows land under.
        floor: entries up to this number may be gone; -1 when none is.
        anchor: hash of entry ``floor``.
        compacted: the first entry number no ``compact`` entry has looked at yet.
        mtime_ms: newest modification time given to a file.
        committed_time: when entry ``last`` was written.
        checksum: SHA-256 over the lines of the entries, newlines included.
        elapsed_ms: how much time the log has seen (`land.state`).
        prepared: files of prepared transactions that have not ended, by path.
    """

    first: int
    last: int
    previous: str
    hash: str
    positions: dict[str, SourcePosition]
    schemas: dict[str, str]
    floor: int
    anchor: str
    compacted: int
    mtime_ms: int
    committed_time: dt.datetime
    checksum: str
    elapsed_ms: int
    prepared: dict[str, PreparedFile] = dataclasses.field(default_factory=dict)

    def to_line(self) -> bytes:
        """Give the first line of the checkpoint, without newline."""
        record = {field: getattr(self, field) for field in self.__slots__}
        record["positions"] = {k: position_record(v) for k, v in self.positions.items()}
        record["published"] = format_time(record.pop("committed_time"))
        del record["prepared"]
        record["last_hash"] = record.pop("hash")
        if self.prepared:
            record["prepared"] = [
                prepared_record(self.prepared[path]) for path in sorted(self.prepared)
            ]
        return sealed(canonical_json({**record, "version": self._version}))

    @property
    def _version(self) -> int:
        return PREPARED_VERSION if self.prepared else HEADER_VERSION

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Read what `to_line` wrote.

        Raises:
            ValueError: it is altered.
            NewerFormatError: it is whole, and of a newer program.
        """
        hash_of(line)
        try:
            record = json.loads(line)
            version = record.pop("version")
            record["hash"] = record.pop("last_hash")
            _whole(record["elapsed_ms"])
            record["positions"] = {k: parse_position(v) for k, v in record["positions"].items()}
            record["committed_time"] = parse_time(record.pop("published"))
            files = [_parse_prepared(item) for item in record.pop("prepared", ())]
            header = cls(**record, prepared={file.path: file for file in files})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise NewerFormatError(f"not the header of a checkpoint: {error}") from error
        if version != header._version:
            raise NewerFormatError(f"version {version!r}, this program reads {PREPARED_VERSION}")
        if header.to_line() != line:
            raise NewerFormatError("a header that is not in canonical form")
        return header


def checkpoint_name(first: int, last: int) -> str:
    """Name the file in ``commits/checkpoints/`` that holds these entries."""
    return f"{first:020d}-{last:020d}.jsonl"


def parse_checkpoint(raw: bytes) -> tuple[CheckpointHeader, Iterator[bytes]]:
    """Split a checkpoint into its header and the exact bytes of its entries.

    Raises:
        ValueError: torn or altered.
    """
    line, _, rest = raw.partition(b"\n")
    header = CheckpointHeader.from_line(line)
    if hashlib.sha256(rest).hexdigest() != header.checksum:
        raise ValueError("altered: its checksum does not match its entries")
    lines = rest.split(b"\n")[:-1]
    if len(lines) != header.last - header.first + 1:
        raise ValueError(f"{len(lines)} entries for numbers {header.first} to {header.last}")
    return header, iter(lines)


def _to_record(entry: CommitEntry) -> dict[str, _Json]:
    return {
        "version": VERSION,
        "n": entry.n,
        "kind": str(entry.kind),
        "previous": entry.previous,
        "positions": {k: position_record(v) for k, v in entry.positions.items()},
        "commit_time": None if entry.commit_time is None else format_time(entry.commit_time),
        "published": format_time(entry.committed_time),
        "mtime_ms": entry.mtime_ms,
        "files": [_file_record(file) for file in entry.files],
        "hidden": list(entry.hidden),
        "truncates": [_marker_record(item) for item in entry.truncates],
        "schema_changes": [_marker_record(item) for item in entry.schema_changes],
        "replaced": [dataclasses.asdict(item) for item in entry.replaced],
        "floor": entry.floor,
        "anchor": entry.anchor,
        "extra": entry.extra,
    }


def _from_record(record: dict[str, _Json]) -> dict[str, _Json]:
    files = tuple(_parse_file(item) for item in record["files"])
    hidden = tuple(_matching(_HIDDEN, item) for item in record["hidden"])
    if len(files) != len(hidden):
        raise ValueError(f"{len(files)} files, {len(hidden)} hidden names")
    time = record["commit_time"]
    return {
        "n": _whole(record["n"]),
        "kind": EntryKind(record["kind"]),
        "previous": _matching(_HASH, record["previous"]),
        "positions": {str(k): parse_position(v) for k, v in record["positions"].items()},
        "commit_time": None if time is None else parse_time(time),
        "committed_time": parse_time(record["published"]),
        "mtime_ms": _whole(record["mtime_ms"]),
        "files": files,
        "hidden": hidden,
        "truncates": tuple(
            Truncate(**{**item, "position": _parse_pair(item["position"])})
            for item in record["truncates"]
        ),
        "schema_changes": tuple(
            SchemaChange(**{**item, "position": _parse_pair(item["position"])})
            for item in record["schema_changes"]
        ),
        "replaced": tuple(
            Replacement(**{**item, "replaced": tuple(item["replaced"])})
            for item in record["replaced"]
        ),
        "floor": None if record["floor"] is None else _whole(record["floor"]),
        "anchor": None if record["anchor"] is None else _matching(_HASH, record["anchor"]),
        "extra": dict(record["extra"]),
    }


def _marker_record(item: Truncate | SchemaChange) -> dict[str, _Json]:
    record = {field: getattr(item, field) for field in item.__slots__}
    return _given({**record, "position": _pair(item.position)}, "source")


def _file_record(file: LandingFile) -> dict[str, _Json]:
    record = {field: getattr(file, field) for field in LandingFile.__slots__}
    return _given({**record, "first": _pair(file.first), "last": _pair(file.last)}, "source")


def _parse_file(record: dict[str, _Json]) -> LandingFile:
    file = LandingFile(
        **{**record, "first": _parse_pair(record["first"]), "last": _parse_pair(record["last"])}
    )
    _matching(_PATH, file.path)
    _matching(_CHECKSUM, file.checksum)
    _whole(file.rows)
    _whole(file.bytes)
    return file


def prepared_record(file: PreparedFile) -> dict[str, _Json]:
    """Make the file of a prepared transaction fit for JSON."""
    return dataclasses.asdict(file)


def _parse_prepared(record: dict[str, _Json]) -> PreparedFile:
    file = PreparedFile(**record)
    _matching(_PREPARED, file.path)
    _matching(_CHECKSUM, file.checksum)
    for number in (file.bytes, file.xid, file.lsn, file.rows):
        _whole(number)
    return file


def _pair(position: Position) -> list[int]:
    return [position.lsn, position.seq]


def _parse_pair(value: _Json) -> Position:
    lsn, seq = value
    return Position(_whole(lsn), _whole(seq))


def _whole(value: _Json) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"not a whole number from 0: {value!r}")
    return value


def _matching(pattern: re.Pattern[str], value: _Json) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"not of the expected form: {value!r}")
    return value
