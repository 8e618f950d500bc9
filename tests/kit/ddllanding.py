"""A landing of a table ``public.t``, and others, with rows and DDL commands, written entry by entry."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from gaussdecode.collect.arrow import arrow_type, system_schema, with_source
from gaussdecode.collect.ddl import ddl_columns
from gaussdecode.land.schemas import fingerprint
from gaussdecode.model.landing import EntryKind, LandingFile, Position
from gaussdecode.model.seal import canonical_json
from gaussdecode.model.types import column_type, type_oid
from kit.history import SOURCE, START, Column, LandingWriter, Table

DDL = "gd_ddl"
OID = 16400
Row = dict[str, Any]


@dataclasses.dataclass
class Of:
    """A column of the source: number, name, type without modifier, and what the catalogue says."""

    number: int
    name: str
    type: str = "integer"
    default: str | None = None
    generated: str | None = None
    not_null: bool = False
    key: int | None = None

    @property
    def oid(self) -> int:
        """Of its type; of one that is not built in where the name is none of the server."""
        return type_oid(self.type) or 99999

    def described(self) -> dict[str, Any]:
        """As a message of the triggers has it."""
        return {
            "attribute_number": self.number, "name": self.name, "type": self.type, "type_oid": self.oid,
            "type_modifier": -1, "not_null": self.not_null or self.key is not None,
            "default": self.default, "generated": self.generated, "identity": None,
            "key_position": self.key,
        }  # fmt: skip


ID = Of(1, "id", key=1)


@dataclasses.dataclass
class Command:
    """A DDL command: its tag, and the table after it."""

    columns: Sequence[Of] | None = None
    tag: str = "ALTER TABLE"
    statement: str | None = (
        "ALTER TABLE t ADD b text, ADD COLUMN c text, ADD a text, ALTER a TYPE bigint, ALTER key TYPE bigint"
    )
    name: str = "t"
    oid: int = OID
    constants: dict[int, str] | None = None
    more: dict[str, Any] = dataclasses.field(default_factory=dict)

    def content(self) -> bytes:
        """As the triggers send it."""
        record = {
            "version": 1, "command_tag": self.tag, "object_type": "table", "schema_name": "public",
            "object_name": self.name, "object_identity": f"public.{self.name}", "oid": self.oid,
            "statement": self.statement, "statement_is_cut": False, "replica_identity": "d",
            "object_count": 1,
            "columns": None if self.columns is None else [of.described() for of in self.columns],
            "constants": self.constants,
        }  # fmt: skip
        return json.dumps({**record, **self.more}).encode()


def dropped(name: str = "t", oid: int = OID) -> Command:
    """DROP TABLE."""
    table = {
        "object_type": "table", "schema_name": "public", "object_name": name,
        "object_identity": f"public.{name}", "oid": oid,
    }  # fmt: skip
    more = {"object_count": 0, "dropped_count": 1, "dropped": [{**table, "original": True}]}
    return Command(None, "DROP TABLE", f"DROP TABLE {name}", name, more=more)


class DdlLanding:
    """The landing, and the number of its newest entry. Of several sources each transaction is of `source`."""

    def __init__(self, root: Path, *sources: str) -> None:
        self.writer = LandingWriter(root, sources=sources or (SOURCE,))
        self.source = sources[0] if sources else None
        self.root = root
        self.lsn = 1000
        self.unknown: set[str] = set()  # names of columns whose numbers no schema file tells

    def land(
        self, *items: tuple[Sequence[Of], Row] | tuple[Sequence[Of], Row, str, int] | Command,
        op: str = "I", snapshot: dict[str, Any] | None = None,
    ) -> int:  # fmt: skip
        """Commit rows and commands, in this order, as one transaction; give the entry's number.

        Rows of op R are a snapshot, as are others with `snapshot`: what it says of each table. Rows may name
        another table than ``t``, and its OID.
        """
        self.lsn += 16
        rows: dict[str, list[Row]] = {}
        tables: dict[str, Table] = {}
        commands: list[Row] = []
        for seq, item in enumerate(items):
            stamps = {
                "gd_op": op, "gd_epoch": 0, "gd_lsn": self.lsn, "gd_seq": seq, "gd_xid": self.lsn,
                "gd_ts": START, "gd_source": self.source,
            }  # fmt: skip
            if isinstance(item, Command):
                commands.append({**stamps, "content": item.content()})
                continue
            columns, row = item[:2]
            table = _table(columns, *item[2:])
            table.source = self.source
            schema_id = self._schema(table, columns)
            tables[schema_id] = table
            rows.setdefault(schema_id, []).append({**stamps, **row})
        files = [
            self.writer.file(
                tables[i].directory,
                i,
                pa.Table.from_pylist(found, schema=self._with_source(tables[i].schema())),
                k,
            )
            for k, (i, found) in enumerate(rows.items())
        ]
        if commands:
            files.append(self._commands(commands, len(files)))
        files = [dataclasses.replace(file, source=self.source) for file in files]
        is_read = op == "R" or snapshot is not None
        kind = EntryKind.SNAPSHOT if is_read else EntryKind.DATA
        said = {"since_n": self.writer.n - 1, **(snapshot or {})}
        extra = {"snapshot": {"tables": {file.table: said for file in files}}} if is_read else None
        return self.writer.entry(kind, self.lsn, files, START, extra=extra)

    def _with_source(self, schema: pa.Schema) -> pa.Schema:
        return schema if self.source is None else with_source(schema)

    def _schema(self, table: Table, columns: Sequence[Of]) -> str:
        record = table.record()
        for column, of in zip(record["columns"], columns, strict=True):
            column |= {"type": of.type, "type_oid": of.oid}
            if of.name in self.unknown:
                column["attribute_number"] = None
        found = fingerprint(record)
        path = self.root / "schemas" / table.directory / f"{found}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(canonical_json(record))
        return found

    def _commands(self, commands: list[Row], k: int) -> LandingFile:
        import pyarrow.parquet as pq

        schema = self._with_source(system_schema(DDL))
        contents = pa.array([row["content"] for row in commands])
        read = ddl_columns(contents)
        arrays = [
            read[field.name]
            if field.name in read
            else pa.array([row.get(field.name) for row in commands], field.type)
            for field in schema
        ]
        path = f"data/{DDL}/gd_date=2026-01-31/{self.writer.n:020d}-{k}.parquet"
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(arrays, schema=schema), self.root / path)
        at = [Position(row["gd_lsn"], row["gd_seq"]) for row in commands]
        checksum = hashlib.sha256((self.root / path).read_bytes()).hexdigest()
        return LandingFile(
            DDL, path, len(commands), (self.root / path).stat().st_size, at[0], at[-1], "0" * 16, {},
            has_unchanged=False, has_key_change=False, checksum=f"sha256:{checksum}",
        )  # fmt: skip


def _table(columns: Sequence[Of], name: str = "t", oid: int = OID) -> Table:
    held = [
        Column(of.number, of.name, arrow_type(column_type(of.oid, -1, None)[0])) for of in columns
    ]
    key = tuple(of.number for of in columns if of.key is not None) or (1,)
    return Table(name, held, key, full=False, oid=oid)
