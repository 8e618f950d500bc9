"""Random tables and transactions, written by the simulator's encoders in any style.

For tests of what reads GaussDB's formats: `Tables` also answers as the catalogue would.
"""

import dataclasses
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from gaussdecode.source.catalog import CatalogColumn, CatalogTable
from gaussdecode.source.gaussdb.catalog import CatalogType
from kit import gausswire as gw
from kit.gaussprofile import V6_0_0, Profile

STYLES: Final = [("b", 0), ("b", 1), ("t", 0), ("t", 1), ("j", 0), ("j", 1), ("s", 0), ("q", 0)]
# OID, format_type_be, and values; numbers come bare, the rest quoted.
TYPES: Final[list[tuple[int, str, list[bytes]]]] = [
    (23, "integer", [b"0", b"-1", b"2147483647"]),
    (25, "text", [b"", b"it's", b"''", b"null", b"a b\n[c]:'d'", b'\\"\t/', b"\xe5\x80\xbc", b"x" * 40]),
    (1043, "character varying", [b"plain", b"B'1'", b" new-tuple: a[integer]:1", b"{}", b");--"]),
    (16, "boolean", [b"t", b"f"]),
    (1700, "numeric", [b".5", b"-.25", b"12.50", b"NaN"]),
    (701, "double precision", [b".100000000000000006", b"Infinity", b"-1e+300"]),
    (1560, "bit", [b"101", b""]),
    (86, "raw", [b"DEADBEEF", b""]),
    (88, "blob", [b"00FF"]),
    (90, "clob", [b"long 'text'"]),
    (1007, "integer[]", [b"{1,2,NULL}", b"{}"]),
    (1114, "timestamp without time zone", [b"2024-03-14 00:00:00"]),
    (5545, "tinyint", [b"255"]),
]  # fmt: skip
NAMES: Final = [
    b"a", b"b", b"id", b"date", b"Id", b'a"b', b"1st", b"\xe5\x90\x8d", b"x y", b"text", b"c[d]:",
    b"_z9",
]  # fmt: skip
TABLES: Final = [(b"public", b"t"), (b"public", b"orders"), (b"s1", b"a.b"), (b"Big", b"T'x\"")]


@dataclasses.dataclass(frozen=True, slots=True)
class Table:
    """One table: its names, columns, and the places of its key."""

    schema: bytes
    name: bytes
    columns: tuple[gw.Column, ...]
    key: tuple[int, ...]
    identity: str  # d, f or n

    def old_places(self) -> tuple[int, ...]:
        """Which columns an old tuple has."""
        if self.identity == "f":
            return tuple(range(len(self.columns)))
        return self.key if self.identity == "d" else ()


class Tables:
    """Some tables, and what the catalogue says of them."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self.listed = list(tables)
        self.asked = 0

    def look_up_table(self, schema: str, name: str) -> CatalogTable | None:
        """Answer as the catalogue does."""
        self.asked += 1
        for number, table in enumerate(self.listed):
            if (table.schema, table.name) == (schema.encode(), name.encode()):
                return CatalogTable(
                    16384 + number, schema, name, "r", table.identity, tuple(_columns(table))
                )
        return None

    def types(self, oids: Iterable[int]) -> Mapping[int, CatalogType]:
        """Know no user's type."""
        assert all(oids)
        return {}


def _columns(table: Table) -> Iterator[CatalogColumn]:
    for index, column in enumerate(table.columns):
        yield CatalogColumn(
            name=column.name.decode(),
            number=index + 1,
            is_toastable=False,
            type_text=column.type_name,
            is_not_null=index in table.key,
            is_generated=False,
            key_position=table.key.index(index) if index in table.key else None,
            type_oid=column.type_oid,
        )


def random_table(rng: random.Random, names: tuple[bytes, bytes], width: int = 6) -> Table:
    """Make a table with a key of one or two columns, or none."""
    count = rng.randrange(1, width + 1)
    columns = tuple(gw.Column(name, *rng.choice(TYPES)[:2]) for name in rng.sample(NAMES, count))
    identity = rng.choice("dddfn")
    key = tuple(sorted(rng.sample(range(count), min(count, rng.choice((1, 1, 2))))))
    return Table(*names, columns, key if identity == "d" else (), identity)


def random_value(rng: random.Random, column: gw.Column, *, is_key: bool) -> bytes | None:
    """Pick a value that a column of this type may have."""
    if not is_key and rng.random() < 0.15:
        return None
    return rng.choice(next(values for oid, _, values in TYPES if oid == column.type_oid))


def random_row(rng: random.Random, table: Table, lsn: int) -> gw.Row:
    """Make one change."""
    op = rng.choice("IIIUUD")
    values = [
        random_value(rng, column, is_key=index in table.key)
        for index, column in enumerate(table.columns)
    ]
    fields = list(zip(table.columns, values, strict=True))
    places = table.old_places()
    old = [fields[place] for place in places] if places and op != "I" else None
    if op == "D" and rng.random() < 0.2:
        old = None  # what an upsert that was overtaken takes back
    return gw.Row(op, lsn, table.schema, table.name, None if op == "D" else fields, old)


def random_transactions(
    rng: random.Random, tables: list[Table], count: int, *, truncates: bool = False
) -> Iterator[gw.Transaction]:
    """Make transactions, positions rising."""
    lsn = 0x1_0000_1000
    for number in range(count):
        changes: list[gw.Row | gw.Truncate] = []
        first = lsn
        for _ in range(rng.randrange(6)):
            lsn += 80
            if truncates and rng.random() < 0.1:
                listed = [(table.schema, table.name) for table in rng.sample(tables, 2)]
                changes.append(gw.Truncate(lsn, listed, rng.random() < 0.5, rng.random() < 0.5))
            else:
                changes.append(random_row(rng, rng.choice(tables), lsn))
        yield gw.Transaction(
            xid=700 + number,
            csn=2000 + number,
            first_lsn=first,
            commit_lsn=lsn + 40,
            end_lsn=lsn + 72,
            commit_time_us=763_734_672_098_179 + number * 1_000_003,
            changes=changes,
            origin=rng.choice((0, 0, 3)),
            user=rng.choice((b"joe", b"\xe5\x90\x8d x")),
        )
        lsn += 80


def stream_of(
    style: str, batch: int, wanted: gw.Wanted, profile: Profile = V6_0_0
) -> gw.ParallelStream | gw.SerialStream:
    """Choose the encoder of a style."""
    if style == "s":
        return gw.SerialStream(wanted, profile)
    if style == "q":
        return gw.SqlStream(wanted, profile)
    return gw.ParallelStream(style, batch, wanted, profile)


def payloads_of(
    stream: gw.ParallelStream | gw.SerialStream, transactions: Iterable[gw.Transaction]
) -> list[tuple[bytes, int]]:
    """Write transactions: payload and header position of each CopyData."""
    bodies = [body for each in transactions for body in stream.transaction(each)]
    if isinstance(stream, gw.ParallelStream) and (last := stream.buffer.flush()) is not None:
        bodies.append(last)
    return [
        (body[gw.HEADER_BYTES :], int.from_bytes(body[1:9], "big"))  # w, then the position
        for body in bodies
    ]


def random_wanted(rng: random.Random) -> gw.Wanted:
    """Ask for any of the optional parts."""
    return gw.Wanted(
        xids=rng.random() < 0.7,
        timestamp=rng.random() < 0.5,
        originid=rng.random() < 0.5,
        user=rng.random() < 0.5,
        skip_empty=rng.random() < 0.5,
        time_zone=rng.choice((0, 480, -210)),
    )
