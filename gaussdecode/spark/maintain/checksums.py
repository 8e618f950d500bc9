"""Compute checksums of a target's rows, to compare them with the source.

A value has one canonical text on both sides (`canonical` here, SQL in
`operations.compare.source_sums`). It is the server's text, except that floats and bytes are hexadecimal
digits, intervals are their three numbers, and lists go element by element. A row's checksum is 60 bits
of the MD5 of its texts, each with its length before it. Its range is the first digits of the MD5 of its
key. Both are sums, so order does not matter.

Given one version of a target and a position; promises the sums of the table at exactly that position:
changes that landed after the version and up to the position are laid over the rows (`Overlay`).

Ranges are of hashed keys. Ranges of the keys would depend on types and collations, and skewed keys
would make uneven ranges.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from gaussdecode.errors import LandingError
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, LandingFile
from gaussdecode.spark.log.landing import Landing, data_kinds
from gaussdecode.spark.log.place import read_table
from gaussdecode.spark.log.schema import OLD, OLD_PREFIX, RAW, UNCHANGED, TableSchema
from gaussdecode.spark.merge.engine import Engine
from gaussdecode.spark.merge.tasks import Job, read_state
from gaussdecode.spark.target.state_file import StateFile, TableVersion
from gaussdecode.spark.target.store import Target

MAX_OVERLAY: Final = 200_000  # changes held by the driver; arbitrary
_ZEROS: Final = re.compile(r"\.?0{1,6}$")
_HASH_DIGITS: Final = 15

Text = str | None
Row = dict[str, Text]
Sums = dict[str, tuple[int, int]]
"""Row count and sum of checksums, by range."""


class MovingError(LandingError):
    """The table was emptied, read anew or altered between the target and the position."""


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The columns that are compared.

    Attributes:
        columns: names in the target's files.
        key: columns that identify a row; empty for a multiset, whose rows are their own keys.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]


# --- texts ------------------------------------------------------------------------------------


def canonical(values: pa.Array) -> list[Text]:
    """The canonical text of each value of a column."""
    return _speller(values.type)(values)


def _speller(of: pa.DataType) -> Callable[[pa.Array], list[Text]]:
    if pa.types.is_floating(of):
        return _float_texts
    if pa.types.is_binary(of):
        return lambda values: [None if v is None else v.hex() for v in values.to_pylist()]
    if pa.types.is_decimal(of):
        return lambda values: [None if v is None else f"{v:f}" for v in values.to_pylist()]
    if pa.types.is_timestamp(of):
        zone = "" if of.tz is None else "+00"
        naive = pa.timestamp("us")
        return lambda values: [
            None if text is None else _ZEROS.sub("", text) + zone
            for text in values.cast(naive).cast(pa.string()).to_pylist()
        ]
    if pa.types.is_struct(of):
        return lambda values: [
            None if v is None else f"{v['months']} {v['days']} {v['micros']}"
            for v in values.to_pylist()
        ]
    if pa.types.is_list(of):
        return _list_texts
    return lambda values: values.cast(pa.string()).to_pylist()


def _float_texts(values: pa.Array) -> list[Text]:
    size = values.type.bit_width // 8
    raw = np.asarray(values.fill_null(0.0)).astype(f">f{size}").tobytes()
    return [
        None if n is None else "NaN" if math.isnan(n) else raw[i * size : (i + 1) * size].hex()
        for i, n in enumerate(values.to_pylist())
    ]


def _list_texts(values: pa.Array) -> list[Text]:
    elements = canonical(values.flatten())
    result: list[Text] = []
    start = 0
    for size in values.value_lengths().to_pylist():
        if size is None:
            result.append(None)
            continue
        result.append(f"[{','.join(map(joined_one, elements[start : start + size]))}]")
        start += size
    return result


def joined_one(text: Text) -> str:
    """Prefix a text with its length; a dash for NULL."""
    return "-" if text is None else f"{len(text)}:{text}"


def joined(row: Mapping[str, Text], names: Collection[str]) -> str:
    """Join the texts of a row, one after the other."""
    return "".join(joined_one(row[name]) for name in names)


def sums_of(row: Mapping[str, Text], shape: Shape) -> tuple[str, int]:
    """Compute the MD5 of a row's key, and its checksum."""
    whole = hashlib.md5(joined(row, shape.columns).encode(), usedforsecurity=False).hexdigest()
    if not shape.key:
        return whole, int(whole[:_HASH_DIGITS], 16)
    key = hashlib.md5(joined(row, shape.key).encode(), usedforsecurity=False).hexdigest()
    return key, int(whole[:_HASH_DIGITS], 16)


def texts_of(rows: pa.Table, names: Sequence[str]) -> list[Row]:
    """Canonical texts of rows; the text in ``gd_raw`` if a value does not fit its column."""
    if not names:  # a table may have no columns
        return [{} for _ in range(rows.num_rows)]
    columns = {name: canonical(rows.column(name).combine_chunks()) for name in names}
    found = [
        dict(zip(columns, texts, strict=True)) for texts in zip(*columns.values(), strict=True)
    ]
    raw = rows.column(RAW)
    if raw.null_count < len(raw):
        for row, pairs in zip(found, raw.to_pylist(), strict=True):
            row.update((name, text) for name, text in pairs or () if name in row)
    return found


# --- rows that changed since ----------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class Overlay:
    """Changes between the target's version and a position.

    Attributes:
        rows: keyed tables: rows by MD5 of the key; None for a removed row.
        unsent: keyed tables: columns to take from the target's row with that other MD5, by MD5 of
            the key.
        added: multisets: checksums of rows by MD5; counts below 0 for removed rows.
    """

    rows: dict[str, Row | None] = dataclasses.field(default_factory=dict)
    unsent: dict[str, tuple[str, list[str]]] = dataclasses.field(default_factory=dict)
    added: Counter[str] = dataclasses.field(default_factory=Counter)

    @property
    def needed(self) -> set[str]:
        """MD5 of the target's rows that have to be read."""
        return {origin for origin, _ in self.unsent.values()}

    def fill(self, base: Mapping[str, Row]) -> None:
        """Take values that were not sent from the target's rows."""
        for key, (origin, names) in self.unsent.items():
            row = self.rows.get(key)
            if row is not None:
                row.update({name: base.get(origin, {}).get(name) for name in names})
        self.unsent.clear()


def overlay(
    landing: Landing,
    entries: Sequence[CommitEntry],
    table: str,
    schema: TableSchema,
    shape: Shape,
    until: tuple[int, int],
) -> Overlay:
    """Read the changes of a table that landed up to a position.

    Args:
        landing: the landing.
        entries: all entries after the target's version, in order.
        table: directory of the table.
        schema: schema of its rows in the target.
        shape: columns to compare.
        until: epoch and LSN.

    Raises:
        MovingError: the table was emptied, altered, renamed or read anew meanwhile.
        LandingError: too many changes landed since the target's last apply.
    """
    landing.refuse_several("what a database has")
    found = Overlay()
    count = 0
    for entry in entries:
        if not data_kinds(entry):
            continue
        for file in entry.files:
            first = (landing.position(entry).epoch, file.first.lsn)
            if first > until:
                continue
            if file.table != table:
                if schema.oid and _oid_of(landing, file) == schema.oid:
                    raise MovingError(
                        f"rows of {schema.title} came under another name in entry {entry.n}"
                    )
                continue
            is_other = file.schema_id != schema.schema_id or entry.kind is EntryKind.SNAPSHOT
            if is_other or file.ops.get("T"):
                raise MovingError(
                    f"{schema.title} is emptied, read anew or altered in entry {entry.n}"
                )
            count += file.rows
            if count > MAX_OVERLAY:
                raise LandingError(
                    f"{schema.title}: more than {MAX_OVERLAY} changes are not applied yet; apply first"
                )
            rows = read_table(landing.root / file.path)
            _lay(found, rows, shape, until)
        where = landing.position(entry)
        if (where.epoch, where.lsn) >= until:
            break
    return found


def _oid_of(landing: Landing, file: LandingFile) -> int:
    """The OID of the table that rows are of; 0 if unknown, and for our own tables."""
    if "." not in file.table:
        return 0
    return int(landing.schema_record(file.table, file.schema_id)["oid"])


def _lay(found: Overlay, rows: pa.Table, shape: Shape, until: tuple[int, int]) -> None:
    news = texts_of(rows, shape.columns)
    olds = _old_texts(rows, shape)
    names = ("gd_op", "gd_epoch", "gd_lsn", UNCHANGED)
    stamps = zip(*(rows.column(name).to_pylist() for name in names), strict=True)
    for new, old, (op, epoch, lsn, unsent) in zip(news, olds, stamps, strict=True):
        if (epoch, lsn) > until:
            continue
        if not shape.key:
            if op in "UD":
                found.added[sums_of(old or {}, shape)[0]] -= 1
            if op != "D":
                found.added[sums_of(new, shape)[0]] += 1
            continue
        _lay_keyed(found, op, new, old, [n for n in unsent or () if n in shape.columns], shape)


def _lay_keyed(
    found: Overlay, op: str, new: Row, old: Row | None, unsent: list[str], shape: Shape
) -> None:
    key = _key_of(old if op == "D" and old is not None else new, shape)
    before = key if old is None else _key_of(old, shape)
    held, origin = found.rows.get(before), found.unsent.get(before)
    if op in "UD":
        found.rows[before] = None
        found.unsent.pop(before, None)
    if op == "D":
        return
    found.rows[key] = new
    found.unsent.pop(key, None)
    missing = [name for name in unsent if old is None or name not in old]
    new.update({name: (old or {})[name] for name in unsent if name not in missing})
    if not missing:
        return
    if held is None:
        found.unsent[key] = (before, missing)
        return
    new.update({name: held[name] for name in missing})
    if origin is not None and (still := [name for name in origin[1] if name in missing]):
        found.unsent[key] = (origin[0], still)


def _key_of(row: Mapping[str, Text], shape: Shape) -> str:
    text = joined(row, shape.key)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _old_texts(rows: pa.Table, shape: Shape) -> list[Row | None]:
    if OLD not in rows.column_names:
        return [None] * rows.num_rows
    old = rows.column(OLD).combine_chunks()
    names = [field.name for field in old.type if field.name in shape.columns]
    columns = [canonical(old.field(name)) for name in names]
    valid = old.is_valid().to_pylist()
    raws = rows.column(RAW).to_pylist()
    found: list[Row | None] = []
    for index, texts in enumerate(zip(*columns, strict=True) if columns else [()] * rows.num_rows):
        if not valid[index]:
            found.append(None)
            continue
        row = dict(zip(names, texts, strict=True))
        for name, text in raws[index] or ():
            plain = name.removeprefix(OLD_PREFIX)
            if plain != name and plain in row:
                row[plain] = text
        found.append(row)
    return found


# --- sums of a table --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A question about rows of a table.

    Attributes:
        shape: columns to compare.
        changed: MD5 of keys whose rows are in the overlay.
        digits: number of hexadecimal digits of a range.
        ranges: ranges whose rows are wanted; none if sums are wanted.
        keys: MD5 of keys whose rows are wanted, with their texts.
    """

    shape: Shape
    changed: frozenset[str] = frozenset()
    digits: int = 0
    ranges: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()


def answer(table: pa.Table, asked: Asked) -> Iterator[str]:
    """Answer for some rows, as JSON; answers for several files are added up."""
    sums: Sums = {}
    for row in texts_of(table, asked.shape.columns):
        key, checksum = sums_of(row, asked.shape)
        if key in asked.keys:
            yield json.dumps([key, row])
        if key in asked.changed:
            continue
        part = key[: asked.digits]
        if part in asked.ranges:
            yield json.dumps([key, checksum, {n: row[n] for n in asked.shape.key}])
        elif asked.digits and not asked.ranges:
            count, total = sums.get(part, (0, 0))
            sums[part] = (count + 1, total + checksum)
    if sums:
        yield json.dumps(sums)


class Stored(Protocol):
    """The rows of one version of a table."""

    def count(self) -> int:
        """Approximate number of rows."""

    def ask(self, asked: Asked) -> list[str]:
        """Run `answer` on all of them."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Task:
    """A file of the current state, and the question."""

    job: Job
    file: StateFile
    asked: Asked


def _run(task: _Task) -> Iterator[str]:
    yield from answer(read_state(task.job, task.file), task.asked)


class StoredFiles:
    """Rows in our own files.

    Args:
        engine: runs the tasks.
        target: the target.
        table: directory of the table.
        version: version of the table.
    """

    def __init__(self, engine: Engine, target: Target, table: str, version: TableVersion) -> None:
        self._engine = engine
        schema = target.schema(table, version.schema_id)
        ids = {version.schema_id, *(f.schema_id for f in (*version.current, *version.quarantine))}
        # Files of the state are kept readable by the newest names; see `reads_as`.
        schemas = dict.fromkeys(ids, schema)
        root = target.table_root(table)
        self._job = Job(0, root, schema, schemas, (), (), 1, (), (), False, False, False, "")
        self._files = (*version.current, *version.quarantine)

    def count(self) -> int:
        """See `Stored`."""
        return sum(file.rows for file in self._files)

    def ask(self, asked: Asked) -> list[str]:
        """See `Stored`."""
        return self._engine.each([_Task(self._job, file, asked) for file in self._files], _run)


class LakeTable:
    """A table of one version of a target, at a position.

    Args:
        stored: its stored rows.
        shape: columns to compare.
        laid: changes since that version.
    """

    def __init__(self, stored: Stored, shape: Shape, laid: Overlay) -> None:
        self._stored, self._shape, self._laid = stored, shape, laid
        if laid.unsent:
            wanted = frozenset(laid.needed)
            found = [json.loads(text) for text in self._each(keys=wanted)]
            laid.fill({item[0]: item[1] for item in found if isinstance(item, list)})

    def _each(self, **wanted: Any) -> list[str]:  # Any: fields of `Asked`
        return self._stored.ask(Asked(self._shape, frozenset(self._laid.rows), **wanted))

    def sums(self, digits: int) -> Sums:
        """Row count and checksum of each range."""
        found: dict[str, list[int]] = {}

        def add(part: str, count: int, checksum: int) -> None:
            held = found.setdefault(part[:digits], [0, 0])
            held[0] += count
            held[1] += checksum

        for text in self._each(digits=digits):
            for part, (count, checksum) in json.loads(text).items():
                add(part, count, checksum)
        for row in self._laid.rows.values():
            if row is not None:
                key, checksum = sums_of(row, self._shape)
                add(key, 1, checksum)
        for key, count in self._laid.added.items():
            add(key, count, count * int(key[:_HASH_DIGITS], 16))
        return {part: (held[0], held[1]) for part, held in found.items() if held != [0, 0]}

    def rows(self, ranges: Collection[str]) -> Counter[tuple[str, int, str]]:
        """MD5 of the key, checksum and key of the rows in ranges of one length."""
        found: Counter[tuple[str, int, str]] = Counter()
        wanted, digits = frozenset(ranges), max(map(len, ranges))
        for text in self._each(ranges=wanted, digits=digits):
            key, checksum, texts = json.loads(text)
            found[key, checksum, json.dumps(texts)] += 1
        for row in self._laid.rows.values():
            if row is not None:
                key, checksum = sums_of(row, self._shape)
                if key[:digits] in wanted:
                    texts = {name: row[name] for name in self._shape.key}
                    found[key, checksum, json.dumps(texts)] += 1
        for key, count in self._laid.added.items():
            if key[:digits] in wanted:
                found[key, int(key[:_HASH_DIGITS], 16), "{}"] += count
        return +found


# --- comparing --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A row that differs between source and target.

    Attributes:
        kind: ``missing`` from the target, ``surplus`` in it, or ``different``.
        key: the key's texts as JSON; for a multiset the MD5 of the row.
    """

    kind: str
    key: str


def different_ranges(source: Sums, target: Sums) -> list[str]:
    """Ranges whose sums differ."""
    return sorted(part for part in {*source, *target} if source.get(part) != target.get(part))


def differences(
    source: Counter[tuple[str, int, str]], target: Counter[tuple[str, int, str]]
) -> list[Difference]:
    """Rows that differ between source and target, by key."""
    only_source, only_target = source - target, target - source
    left = {key for key, _, _ in only_source}
    right = {key for key, _, _ in only_target}
    shown = {key: text if text != "{}" else key for key, _, text in [*only_source, *only_target]}
    kinds = {
        **dict.fromkeys(left - right, "missing"),
        **dict.fromkeys(right - left, "surplus"),
        **dict.fromkeys(left & right, "different"),
    }
    return [Difference(kinds[key], shown[key]) for key in sorted(kinds)]
