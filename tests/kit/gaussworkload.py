"""A seeded random workload on the simulated server's store.

Several transactions are open at once, so their WAL interleaves; some roll back, some have
savepoints, some are larger than a message. Tables have every kind of replica identity, all
types that openGauss has of its own, and names that must be quoted.
"""

import uuid
from collections.abc import Mapping
from random import Random
from typing import Final

from kit.gaussstore import Store, Table, Transaction, Value
from kit.values import string

ALL_TYPES: Final[Mapping[str, str]] = {
    "c_bool": "bool", "c_int1": "int1", "c_int2": "int2", "c_int4": "int4", "c_int8": "int8",
    "c_oid": "oid", "c_float4": "float4", "c_float8": "float8", "c_numeric": "numeric",
    "c_numeric_12_3": "numeric(12,3)", "c_numeric_38_10": "numeric(38,10)", "c_text": "text",
    "c_varchar": "varchar(40)", "c_char": "char(6)", "c_nvarchar2": "nvarchar2(20)",
    "c_clob": "clob", "c_bytea": "bytea", "c_raw": "raw", "c_blob": "blob", "c_date": "date",
    "c_time": "time", "c_timestamp": "timestamp", "c_timestamp_0": "timestamp(0)",
    "c_timestamptz": "timestamptz", "c_smalldatetime": "smalldatetime", "c_uuid": "uuid",
    "c_json": "json", "c_jsonb": "jsonb", "c_bit": "bit(7)", "c_varbit": "varbit(20)",
    "c_int4s": "int4[]", "c_texts": "text[]", "c_numerics": "numeric[]", "c_interval": "interval",
}  # fmt: skip
_CHINESE: Final = ("名称", "订单", "中文字符", "值")
_FLOATS: Final = ("0", "0.5", "-0.25", "0.1", "1e+100", "-5e-07", "NaN", "Infinity", "-Infinity",
                  "123456.789", "-0")  # fmt: skip
_FLOATS4: Final = ("0", "0.5", "-0.25", "1e+20", "NaN", "Infinity", "-Infinity", "3.25", "0.1")
_NUMERICS: Final = ("0", "0.5", "-0.25", "0.00", "NaN", "12345678901234567890.123456789", "-7")
_FIXED: Final[Mapping[str, tuple[str, ...]]] = {
    "bool": ("t", "f"), "int1": ("0", "255", "17"), "int2": ("-32768", "32767", "0"),
    "int4": ("-2147483648", "2147483647", "0"), "oid": ("0", "4294967295"),
    "int8": ("-9223372036854775808", "9223372036854775807", "1"), "float4": _FLOATS4,
    "float8": _FLOATS, "numeric": _NUMERICS, "json": ('{"a": 1}', "[]", ' "x"', '{"名": "it\'s"}'),
    "jsonb": ('{"a": 1}', "[]", '"\\"q\\""'), "bit(7)": ("0000000", "1010101"),
    "varbit(20)": ("", "1", "1100"), "int4[]": ("{}", "{1,NULL,-3}"),
    "text[]": ("{}", '{a,"b c",NULL,"NULL","q\\"q"}'), "numeric[]": ("{0.5,-0.25,NULL,7}", "{}"),
    "interval": ("00:00:00", "1 year 2 mons", "-3 days +04:05:06.789"),
    "date": ("2024-02-29", "0001-01-01", "9999-12-31"),
    "time": ("00:00:00", "23:59:59.999999", "12:30:00.5"),
}  # fmt: skip


class Values:
    """Makes values as PostgreSQL would print them.

    Args:
        rng: seeded.
        codec: of the database; text is limited to it.
    """

    def __init__(self, rng: Random, codec: str = "utf-8") -> None:
        self._rng = rng
        self._codec = codec

    def make(self, kind: str) -> str | None:
        """Make one value, NULL now and then."""
        if self._rng.random() < 0.12:
            return None
        return self.some(kind)

    def some(self, kind: str) -> str:
        """Make one value that is not NULL."""
        rng = self._rng
        if kind in _FIXED:
            return self._fit(rng.choice(_FIXED[kind]))
        if kind.startswith("numeric("):
            scale = int(kind.rstrip(")").split(",")[1])
            return f"{rng.choice((0, 1, rng.randint(-(10**8), 10**8))) / 1000:.{scale}f}".replace(
                "-0.000", "0.000"
            )
        if kind in ("bytea", "raw", "blob"):
            return "\\x" + rng.randbytes(rng.choice((0, 1, 7, 60))).hex()
        if kind == "uuid":
            return str(uuid.UUID(int=rng.getrandbits(128)))
        if kind.startswith(("timestamp", "smalldatetime")):
            return self._moment(kind)
        return self._text(kind)

    def _text(self, kind: str) -> str:
        limit = int(kind.partition("(")[2].rstrip(")") or 60)
        text = self._rng.choice((string(limit)(self._rng), self._rng.choice(_CHINESE)))
        # In an A-compatible database an empty text is NULL; only text itself keeps it here.
        fitted = self._fit(text)[:limit]
        return fitted.ljust(limit) if kind.startswith("char(") else fitted

    def _fit(self, text: str) -> str:
        return text.encode(self._codec, "ignore").decode(self._codec)

    def _moment(self, kind: str) -> str:
        rng = self._rng
        seconds = "00" if kind == "smalldatetime" else f"{rng.randint(0, 59):02}"
        fraction = (
            ""
            if kind in ("smalldatetime", "timestamp(0)")
            else rng.choice(("", ".5", ".000001", ".120034"))
        )
        zone = "+00" if kind == "timestamptz" else ""
        return (
            f"{rng.randint(1900, 2200)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} "
            f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{seconds}{fraction}{zone}"
        )


class Workload:
    """Random transactions over the tables it creates.

    Args:
        store: where.
        seed: of everything random.
        codec: of the database.
        large: now and then write values that fill messages.
        upserts: now and then overtake an INSERT ... ON DUPLICATE KEY, on heap and on ustore.
    """

    def __init__(
        self,
        store: Store,
        seed: int,
        *,
        codec: str = "utf-8",
        large: bool = True,
        upserts: bool = False,
    ) -> None:
        self._store = store
        self._rng = Random(seed)
        self._values = Values(self._rng, codec)
        self._large = large
        self._upserts = upserts
        self._next_id = 0
        self._columns = 0
        self._kinds: dict[int, dict[str, str]] = {}
        self._tables: dict[str, Table] = {}
        # Row ids that a transaction which is still open has touched; others leave them alone.
        self._touched: set[int] = set()
        self._create()

    def _create(self) -> None:
        keyed: Mapping[str, object] = {"key": ["id"]}
        types = {"id": "int8", **ALL_TYPES}
        weird = {"id": "int8", "date": "timestamp(0)", "Id": "int4", "user": "text", 'a"b': "text",
                 "ok_1": "int4", "1st": "int4", "名称": "text", "sp ace": "text"}  # fmt: skip
        small = {"id": "int8", "v": "text", "n": "numeric(12,3)"}
        wanted: tuple[tuple[str, str, dict[str, str], Mapping[str, object]], ...] = (
            ("kit", "types", types, keyed),
            ("kit", "types_full", types, {**keyed, "identity": "f"}),
            ("My Schema", "订单", weird, keyed),
            ("kit", "pair_key", {"v": "text", "b": "int8", "a": "varchar(20)"}, {"key": ["a", "b"]}),
            ("kit", "index_key", {"id": "int8", "k": "int8", "v": "text"},
             {**keyed, "identity": "i", "index_key": ["k"]}),
            ("kit", "bag", small, {}),
            ("kit", "bag_full", small, {"identity": "f"}),
            ("kit", "bag_ustore", small, {"is_ustore": True}),
            ("kit", "shape", small, keyed),
        )  # fmt: skip
        for schema, name, columns, how in wanted:
            self._make(schema, name, columns, how)
        if self._upserts:
            self._make("kit", "keyed_ustore", small, {**keyed, "is_ustore": True})

    def _make(
        self, schema: str, name: str, columns: dict[str, str], how: Mapping[str, object]
    ) -> None:
        table = self._store.create_table(schema, name, columns, **how)  # type: ignore[arg-type]  # as listed
        self._tables[name] = table
        self._kinds[table.oid] = dict(columns)

    def run(self, transactions: int) -> None:
        """Run transactions, three of them open at a time."""
        running: list[tuple[Transaction, set[int], int]] = []
        for _ in range(transactions):
            steps = self._rng.choice((1, 1, 2, 3, 8, 20))
            running.append(
                (self._store.begin(user=self._rng.choice(("app", "batch"))), set(), steps)
            )
            while len(running) > 2:
                self._advance(running)
        while running:
            self._advance(running)
        self._change_shape()

    def _advance(self, running: list[tuple[Transaction, set[int], int]]) -> None:
        """Take one step in one of the open transactions, and end it when it has no more."""
        at = self._rng.randrange(len(running))
        transaction, own, left = running[at]
        if left:
            self._step(transaction, own)
            running[at] = (transaction, own, left - 1)
            return
        del running[at]
        self._touched -= own
        if self._rng.random() < 0.1:
            transaction.rollback()
        else:
            transaction.commit()
        if self._rng.random() < 0.1:
            self._store.commit_elsewhere()

    def _step(self, transaction: Transaction, own: set[int]) -> None:
        table = self._tables[self._rng.choice(list(self._tables))]
        choice = self._rng.random()
        if self._upserts and table.key and self._rng.random() < 0.4:
            self._upsert(transaction, table, own)
        elif choice < 0.08:
            self._savepoint(transaction, own)
        elif choice < 0.5:
            self._insert(transaction, table, own)
        elif table.name != "bag":  # rows without identity cannot be followed
            self._change(transaction, table, own, is_delete=choice > 0.85)

    def _insert(self, transaction: Transaction, table: Table, own: set[int]) -> None:
        count = self._rng.choice((1, 1, 1, 5, 40))
        rows = [self._row(table) for _ in range(count)]
        if self._large and self._rng.random() < 0.06 and "v" in rows[0]:
            rows[0]["v"] = "long " * self._rng.choice((2000, 60_000, 230_000))
        own |= set(transaction.insert(table, *rows))

    def _row(self, table: Table) -> dict[str, Value]:
        self._next_id += 1
        kinds = self._kinds[table.oid]
        row: dict[str, Value] = {name: self._values.make(kind) for name, kind in kinds.items()}
        for name in {*table.key, *table.index_key, "id"} & kinds.keys():
            row[name] = str(self._next_id) if kinds[name] == "int8" else f"k{self._next_id}"
        return row

    def _upsert(self, transaction: Transaction, table: Table, own: set[int]) -> None:
        """An upsert of one or two rows, each overtaken; then the row that won is updated, or not.

        On ustore it is: else the stream has values that the table has not.
        """
        free = sorted(at for at in self._store.contents(table) if at not in self._touched)
        for row_id in self._rng.sample(free, min(len(free), self._rng.choice((1, 1, 2)))):
            self._touched.add(row_id)
            own.add(row_id)
            there = table.row(self._store.contents(table)[row_id])
            keys = {*table.key, *table.index_key}
            given = {**self._row(table), **{name: there[name] for name in keys}}
            transaction.overtaken(table, given)
            if table.is_ustore:
                transaction.update(table, row_id, given)
            elif self._rng.random() < 0.6:
                changes = {name: value for name, value in given.items() if name not in keys}
                transaction.update(table, row_id, changes)

    def _change(
        self, transaction: Transaction, table: Table, own: set[int], *, is_delete: bool
    ) -> None:
        free = [at for at in self._store.contents(table) if at not in self._touched]
        if not free:
            return
        row_id = self._rng.choice(free)
        self._touched.add(row_id)
        own.add(row_id)
        if is_delete:
            transaction.delete(table, row_id)
            return
        kinds = self._kinds[table.oid]
        fixed = {*table.key, *table.index_key, "id"}
        names = [name for name in kinds if name not in fixed]
        chosen = self._rng.sample(names, min(len(names), self._rng.randint(0, 4)))
        changes: dict[str, Value] = {name: self._values.make(kinds[name]) for name in chosen}
        keys = table.index_key or table.key
        if keys and self._rng.random() < 0.2:
            self._next_id += 1
            name = keys[-1]
            changes[name] = str(self._next_id) if kinds[name] == "int8" else f"k{self._next_id}"
        transaction.update(table, row_id, changes)

    def _savepoint(self, transaction: Transaction, own: set[int]) -> None:
        transaction.savepoint()
        for _ in range(self._rng.randint(1, 3)):
            self._insert(transaction, self._tables["pair_key"], own)
        if self._rng.random() < 0.5:
            transaction.release()
        else:
            transaction.rollback_to_savepoint()

    def _change_shape(self) -> None:
        """Change a table between transactions; nobody has it open."""
        table = self._tables["shape"]
        kinds = self._kinds[table.oid]
        extra = [name for name in kinds if name.startswith("s_")]
        if extra and self._rng.random() < 0.4:
            name = self._rng.choice(extra)
            table = self._store.drop_column(table, name)
            del kinds[name]
        else:
            self._columns += 1
            name, kind = f"s_{self._columns}", self._rng.choice(("int4", "text", "timestamp"))
            table = self._store.add_column(table, name, kind)
            kinds[name] = kind
        self._tables["shape"] = table
        ddl = self._store.begin()
        ddl.ddl()
        ddl.commit()
