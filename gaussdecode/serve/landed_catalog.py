"""Answer what this package's own daemon asks the catalogue of a GaussDB, from what has landed; and who a client is.

A daemon with ``source.kind: gaussdb`` looks tables, keys and types up by a few statements, which are always the
same. The schema files of a landing have what it asks for. A statement is recognised word by word, with constants in
its blanks; no other SQL is understood. The answer is that of the newest schemas. What a landing does not know, such as
NOT NULL, is NULL. A table is left out if its OID, or the number of a column, is not known.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gaussdecode.model.relation import ReplicaIdentity
from gaussdecode.model.title import split_title
from gaussdecode.model.types import internal_name
from gaussdecode.serve.messages import Column
from gaussdecode.serve.reader import Wanted
from gaussdecode.serve.sql import Known, Token, tokens_of
from gaussdecode.source.gaussdb import catalog, inspection, server, tables
from gaussdecode.spark.log.landing import Landing

_Json = Mapping[str, Any]  # Any: JSON
_Row = Sequence[str | int | bool | None]
_CONSTANTS: Final = frozenset({"string", "number"})
_COMMA: Final = Token("op", ",")
_DROPPED: Final = "........pg.dropped.{}........"  # as the server calls such a column


class LandedCatalog:
    """The tables of a landing under their newest schemas.

    Args:
        landing: the landing.
        source: the one that is asked for, where the landing has several.
    """

    def __init__(self, landing: Landing, source: str | None) -> None:
        self._landing = landing
        self._begin = "" if source is None else f"{source}/"
        self._lock = threading.Lock()
        self._schemas: dict[str, str] = {}
        self._changed: dict[str, int] = {}  # number of the entry, of those since the first look
        self._until = -1

    def answer(
        self, tokens: Sequence[Token], user: str, settings: Mapping[str, str], wanted: Wanted
    ) -> Known | None:
        """Answer a statement; None for one that is not known.

        Args:
            tokens: of the statement.
            user: name of who asks.
            settings: of the session, as the view pg_settings has them.
            wanted: tells the tables that the user gets.

        Raises:
            LandingError: a file of the landing cannot be read.
        """
        for statement, columns, rows_of in _STATEMENTS:
            blanks = _blanks(statement, tokens)
            if blanks is not None:
                strings = {token.text for token in tokens if token.kind == "string"}
                shown = {name: text for name, text in settings.items() if name in strings}
                asked = _Asked(blanks, user, shown, lambda: self._tables(wanted))
                return Known(tuple(map(Column, columns)), tuple(rows_of(asked)))
        return None

    def _tables(self, wanted: Wanted) -> list[_Json]:
        """Records of schemas, by names."""
        with self._lock:  # clients ask in several threads
            schemas, until = self._landing.schemas_at_checkpoint()
            if until > self._until:
                self._schemas, self._until = schemas, until
            for entry in self._landing.entries(self._until + 1, self._landing.last_n):
                self._schemas |= {change.key: change.schema_id for change in entry.schema_changes}
                self._changed |= {change.key: entry.n for change in entry.schema_changes}
                self._until = entry.n
            found = list(self._schemas.items())
            changed = dict(self._changed)
        records = (
            (
                changed.get(key, -1),
                self._landing.schema_record(key.removeprefix(self._begin), schema_id),
            )
            for key, schema_id in found
            if key.startswith(self._begin) and not key.removeprefix(self._begin).startswith("gd_")
        )
        # One that was renamed is here under its former names too, with the columns of then.
        newest: dict[int, tuple[tuple[int, int], list[_Json]]] = {}
        for n, record in records:
            numbers = [column["attribute_number"] for column in record["columns"]]
            if not record["oid"] or None in numbers:
                continue
            age = (n, max(numbers, default=0))  # numbers of columns only rise
            before, held = newest.get(record["oid"], ((-2, 0), []))
            if before < age:
                newest[record["oid"]] = (age, [record])
            elif before == age:
                held.append(record)
        known = [
            of for _, held in newest.values() for of in held if wanted(of["schema"], of["name"])
        ]
        return sorted(known, key=lambda record: (record["schema"], record["name"]))


class _Asked:
    """What a statement asks.

    Args:
        blanks: constants in its blanks.
        user: name of who asks.
        settings: those that the statement names.
        tables: gives records of schemas, by names.
    """

    def __init__(
        self,
        blanks: Sequence[Sequence[str]],
        user: str,
        settings: Mapping[str, str],
        tables: Callable[[], Iterable[_Json]],
    ) -> None:
        self.blanks = blanks
        self.user = user
        self.settings = settings
        self.tables = tables

    def of_oid(self) -> _Json | None:
        """The table whose OID stands in the blank."""
        return next((of for of in self.tables() if [str(of["oid"])] == self.blanks[0]), None)


def _blanks(wanted: Sequence[Token], given: Sequence[Token]) -> list[list[str]] | None:
    """Constants, one or several after commas, where a statement has its blanks; None for another statement."""
    found: list[list[str]] = []
    at = 0
    for token in wanted:
        if token.kind == "param":
            constants: list[str] = []
            while at < len(given) and given[at].kind in _CONSTANTS:
                constants.append(given[at].text)
                at += 1
                following = given[at : at + 2]
                if following[:1] == [_COMMA] and following[-1].kind in _CONSTANTS:
                    at += 1
            found.append(constants)
        elif at < len(given) and given[at] == token:
            at += 1
        else:
            return None
    return found if at == len(given) else None


# ---- tables --------------------------------------------------------------------------------


def _table(asked: _Asked) -> Iterator[_Row]:
    name = tuple(text for (text,) in asked.blanks)
    for of in asked.tables():
        if (of["schema"], of["name"]) == name:
            yield of["oid"], "r", of["identity"]


def _tables(asked: _Asked) -> Iterator[_Row]:
    for of in asked.tables():
        yield of["oid"], of["schema"], of["name"], of["identity"], None, _is_primary(of)


def _is_primary(of: _Json) -> bool:
    """Whether the key of a landed table is the primary key: under FULL it is, though it is not sent."""
    return of["key"] is not None and of["identity"] != ReplicaIdentity.INDEX.value


def _columns(asked: _Asked) -> Iterator[_Row]:
    of = asked.of_oid()
    for column in () if of is None else of["columns"]:
        storage = {True: ("x", -1), False: ("p", None), None: (None, None)}[column["toastable"]]
        yield (
            column["name"], column["attribute_number"], *storage, _spelled(column), None,
            column["type_oid"], column["type_modifier"],
        )  # fmt: skip


def _spelled(column: _Json) -> str:
    return str(column["type_text"] or column["type"])


def _attributes(asked: _Asked) -> Iterator[_Row]:
    of = asked.of_oid()
    if of is None:
        return
    found: list[tuple[int, str, int, int, bool]] = [
        (c["attribute_number"], c["name"], c["type_oid"], c["type_modifier"], False)
        for c in of["columns"]
    ]
    found += [(number, _DROPPED.format(number), 0, -1, True) for number in of.get("dropped", ())]
    yield from sorted(found)


def _indexes(asked: _Asked) -> Iterator[_Row]:
    of = asked.of_oid()
    if of is None or of["key"] is None:
        return
    numbers = {column["name"]: column["attribute_number"] for column in of["columns"]}
    key = " ".join(str(numbers[name]) for name in of["key"])
    is_primary = _is_primary(of)
    yield key, len(of["key"]), is_primary, not is_primary, True, True


def _types(asked: _Asked) -> Iterator[_Row]:
    """Types of users: of domains the base, as the stream has it; of what else they are made nobody knows."""
    wanted = set(asked.blanks[0])
    for of in asked.tables():
        for column in of["columns"]:
            if str(column["type_oid"]) not in wanted:
                continue
            wanted.remove(str(column["type_oid"]))
            name = _type_name(column["type"])
            if name is not None:
                yield column["type_oid"], *name, None, None, None, None, None


def _type_name(spelled: str) -> tuple[str, str] | None:
    """Schema and name in pg_type."""
    internal = internal_name(spelled)
    if internal is not None:
        return "pg_catalog", internal
    try:
        return split_title(spelled)
    except ValueError:
        return None


def _all_columns(asked: _Asked) -> Iterator[_Row]:
    for of in asked.tables():
        key = of["key"] or ()
        for column in of["columns"]:
            name = _type_name(column["type"]) or (None, None)
            is_key = column["identity"] if of["identity"] != "f" else column["name"] in key
            yield (
                of["schema"], of["name"], column["name"], column["type_oid"], column["type_modifier"],
                _spelled(column), column["type_oid"], *name, is_key,
            )  # fmt: skip


# ---- the server ----------------------------------------------------------------------------


def _settings(asked: _Asked) -> Iterator[_Row]:
    yield from asked.settings.items()


def _role(asked: _Asked) -> Iterator[_Row]:
    yield asked.user, False, -1


def _roles(asked: _Asked) -> Iterator[_Row]:
    """Of the user itself, whom only this server knows."""
    if asked.blanks[0] == [asked.user]:
        yield 0, asked.user, False, True, False, False, True, True


def _clock(_asked: _Asked) -> Iterator[_Row]:
    yield (str(time.time()),)


def _nothing(_asked: _Asked) -> Iterator[_Row]:
    yield from ()


_ROLES: Final = (
    "SELECT oid, rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication FROM pg_roles "
    "WHERE pg_has_role(%s, oid, 'member')"
)
"""Debezium wants LOGIN and REPLICATION."""
_RowsOf = Callable[[_Asked], Iterator[_Row]]
_ANSWERS: Final[tuple[tuple[str, str, _RowsOf], ...]] = (
    (catalog.TABLE, "oid relkind relreplident", _table),
    (
        catalog.COLUMNS,
        "attname attnum attstorage typlen format_type attnotnull atttypid atttypmod",
        _columns,
    ),
    (catalog.ATTRIBUTES, "attnum attname atttypid atttypmod attisdropped", _attributes),
    (
        catalog.INDEXES,
        "indkey indnkeyatts indisprimary indisreplident indimmediate indisvalid",
        _indexes,
    ),
    (catalog.DEFAULTS, "adnum adgencol", _nothing),
    (
        catalog.TYPES,
        "oid nspname typname typtype typbasetype typtypmod typelem typcategory",
        _types,
    ),
    (tables.TABLES, "oid nspname relname relreplident reloptions exists", _tables),
    (
        tables.ALL_COLUMNS,
        "nspname relname attname atttypid atttypmod format_type oid nspname typname exists",
        _all_columns,
    ),
    (tables.UNREADABLE, "nspname relname reloptions", _nothing),
    (tables.BY_INTERVAL, "nspname relname", _nothing),
    (server.READ_SETTINGS, "name setting", _settings),
    (server.READ_NODE_TYPE, "node_type", _nothing),
    (inspection.READ_SETTINGS, "name setting", _settings),
    (inspection.ROLE, "rolname rolsuper rolconnlimit", _role),
    (inspection.CLOCK, "date_part", _clock),
    (
        _ROLES,
        "oid rolname rolsuper rolinherit rolcreaterole rolcreatedb rolcanlogin rolreplication",
        _roles,
    ),
)
_STATEMENTS: Final = tuple(
    (tokens_of(text.replace("%s", "$1")), columns.split(), rows_of)
    for text, columns, rows_of in _ANSWERS
)
