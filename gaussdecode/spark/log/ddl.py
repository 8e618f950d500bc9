"""Read the DDL commands of a landing: the rows of ``gd_ddl``, one event for each table of a command.

Only messages of PostgreSQL's event triggers describe the columns of a table (docs/ddl.md). Rows of
GaussDB and openGauss give events with a statement alone. DDL commands are few: this is Python for
each of them.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

import pyarrow as pa

from gaussdecode.errors import LandingError
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.title import table_title
from gaussdecode.spark.log.landing import Landing, data_kinds
from gaussdecode.spark.log.place import parquet_file
from gaussdecode.spark.log.schema import SOURCE

DDL: Final = "gd_ddl"
_FORMAT: Final = 1
_STAMPS: Final = ("gd_epoch", "gd_lsn", "gd_seq", "gd_xid", "gd_ts")
_READ: Final = (*_STAMPS, "command_tag", "schema_name", "object_name", "oid", "statement")
_LITERAL: Final = r"'(?P<text>(?:[^'\\]|'')*)'"
_COMMENT: Final = re.compile(
    rf"\s*COMMENT\s+ON\s+(?:TABLE|COLUMN)\s[^']*\sIS\s+(?:NULL|{_LITERAL})\s*;?\s*", re.IGNORECASE
)
_LAST_NAME: Final = re.compile(r'.*\.("(?:[^"]|"")+"|[^".]+)', re.DOTALL)
Json = dict[str, Any]  # Any: decoded JSON


@dataclasses.dataclass(frozen=True, slots=True)
class DdlColumn:
    """A column of a table after a command.

    Attributes:
        number: attribute number, from 1.
        name: name on the server.
        type: type with its modifier, as the server spells it.
        type_oid: OID of the type.
        modifier: type modifier; -1 for none.
        not_null: whether it is NOT NULL.
        default: expression of its default; None for none.
        generated: ``s`` or ``v``, as in pg_attribute; None for a plain column.
        identity: ``a`` or ``d``, as in pg_attribute; None for none.
        key_position: position in the primary key, from 1; None outside of it.
    """

    number: int
    name: str
    type: str
    type_oid: int
    modifier: int
    not_null: bool
    default: str | None
    generated: str | None
    identity: str | None
    key_position: int | None

    @classmethod
    def from_record(cls, record: Json) -> Self:
        """Read a column of a message."""
        return cls(
            int(record["attribute_number"]),
            str(record["name"]),
            str(record["type"]),
            int(record["type_oid"]),
            int(record["type_modifier"]),
            bool(record["not_null"]),
            record["default"],
            record["generated"],
            record["identity"],
            record["key_position"],
        )


@dataclasses.dataclass(frozen=True, slots=True)
class DdlEvent:
    """What a DDL command did to one table.

    Attributes:
        n: number of the entry that it landed with.
        epoch: epoch of its position.
        lsn: position of its transaction.
        seq: its number in the transaction, among the rows.
        source: its source, if the landing has several; else None.
        stamps: ``gd_xid``, ``gd_ts`` and the others of its row.
        command_tag: as ``ALTER TABLE``; None if the message cannot be read.
        object_type: as ``table``; None if unknown.
        schema: schema of the table, not quoted; None if unknown.
        name: name of the table, not quoted; None if unknown.
        identity: the object with its schema, quoted; None if unknown.
        oid: OID of the table; None if unknown.
        statement: text of the client's query; None if unknown or cut.
        replica_identity: ``d``, ``n``, ``f`` or ``i``; None if unknown.
        columns: columns after the command; None if unknown, and for a dropped table.
        constants: texts of values that rows have from before a column was added, by its number; where it
            has none, they are NULL or written in the rows. None if unknown.
        is_dropped: whether the command dropped the table.
        is_rewritten: whether the command wrote a table anew: this one, or a partition.
    """

    n: int
    epoch: int
    lsn: int
    seq: int
    source: str | None
    stamps: Json
    command_tag: str | None
    object_type: str | None = None
    schema: str | None = None
    name: str | None = None
    identity: str | None = None
    oid: int | None = None
    statement: str | None = None
    replica_identity: str | None = None
    columns: tuple[DdlColumn, ...] | None = None
    constants: Mapping[int, str] | None = None
    is_dropped: bool = False
    is_rewritten: bool = False

    @property
    def place(self) -> tuple[int, int, int]:
        """Epoch, LSN and number in the transaction."""
        return (self.epoch, self.lsn, self.seq)

    @property
    def title(self) -> str | None:
        """``schema.name`` of the table; None if unknown."""
        if self.schema is None or self.name is None:
            return None
        return table_title(self.schema, self.name)

    @property
    def told(self) -> str:
        """The command and its position, for messages."""
        where = f"{Lsn(self.lsn)} row {self.seq} of epoch {self.epoch}, entry {self.n}"
        return f"{self.command_tag} at {where}"

    @property
    def comment(self) -> tuple[str | None, str] | None:
        """A comment that the command set: name of the column or None for the table, and its text.

        The text is empty for a removed comment. None if the command is another one, or if its statement
        does not tell.
        """
        match = _COMMENT.fullmatch(self.statement or "")
        if self.command_tag != "COMMENT" or match is None or self.identity is None:
            return None
        text = (match["text"] or "").replace("''", "'")
        if self.object_type == "table":
            return None, text
        name = _LAST_NAME.fullmatch(self.identity)
        if self.object_type != "table column" or name is None:
            return None
        column = name[1]
        return (column[1:-1].replace('""', '"') if column.startswith('"') else column), text


def read_events(landing: Landing, entry: CommitEntry) -> Iterator[DdlEvent]:
    """Read the DDL commands that landed with an entry, in order.

    Raises:
        LandingError: a file is missing or damaged.
    """
    if not data_kinds(entry):
        return
    for file in entry.files:
        if file.table != DDL:
            continue
        path = landing.root / file.path
        names = [*_READ, "content", *([SOURCE] if landing.has_several else [])]
        try:
            with parquet_file(path) as opened:
                rows = opened.read(columns=names).to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise LandingError(
                f"{path} cannot be read: {error}; is the landing complete?"
            ) from error
        for row in rows:
            yield from _events(entry.n, row)


def _events(n: int, row: Json) -> Iterator[DdlEvent]:
    """The events of a row; one that names no table if its message has none."""
    stamps = {name: row[name] for name in _STAMPS}
    plain = DdlEvent(
        n, row["gd_epoch"], row["gd_lsn"], row["gd_seq"], row.get(SOURCE), stamps,
        row["command_tag"], None, row["schema_name"], row["object_name"], None, row["oid"],
        row["statement"],
    )  # fmt: skip
    try:
        message = json.loads(row["content"])
        found = list(_of_message(plain, message)) if _is_ours(plain, message) else [plain]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        found = [plain]
    yield from found


def _is_ours(plain: DdlEvent, message: object) -> bool:
    """Whether the event triggers wrote a message, and this program can read it."""
    is_known = isinstance(message, dict) and message.get("version") == _FORMAT
    return is_known and plain.command_tag is not None


def _of_message(plain: DdlEvent, message: Json) -> Iterator[DdlEvent]:
    statement = None if message.get("statement_is_cut") else message.get("statement")
    plain = dataclasses.replace(plain, statement=statement)
    dropped = [of for of in message.get("dropped") or () if of["object_type"] == "table"]
    # A command that dropped its object has that as its own, without columns.
    objects = message.get("objects") or ([message] if message.get("object_count") else [])
    for of in dropped:
        yield dataclasses.replace(_of_object(plain, of), is_dropped=True)
    for of in objects:
        columns, constants = of.get("columns"), of.get("constants")
        yield dataclasses.replace(
            _of_object(plain, of),
            replica_identity=of.get("replica_identity"),
            columns=None if columns is None else tuple(map(DdlColumn.from_record, columns)),
            is_rewritten=bool(message.get("rewritten_count")),
            constants=None if constants is None else {int(n): str(t) for n, t in constants.items()},
        )
    if not dropped and not objects:
        yield plain


def _of_object(plain: DdlEvent, record: Json) -> DdlEvent:
    return dataclasses.replace(
        plain,
        object_type=record.get("object_type"),
        schema=record.get("schema_name"),
        name=record.get("object_name"),
        identity=record.get("object_identity"),
        oid=record.get("oid"),
    )
