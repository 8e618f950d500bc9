"""Make versions of relations from shapes of rows: the reader's slow path for GaussDB.

A row repeats its table's columns but says neither key nor modifiers, and nothing announces
a change. So a version is made of three things: the columns of the row that made it
necessary; what the catalogue says about columns of the same name and type; and the old
tuples seen so far, which show the replica identity that was in force when the WAL was
written. The catalogue is newer than the WAL: where an old tuple contradicts it, the tuple
is right, and a new version begins. Without a catalogue everything works, but numerics are
text and a key is known once an old tuple has shown it.

The registry lives as long as the connection. Above its limit the versions of quiet tables
wait in a file (`_spill`).
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from gaussdecode.errors import LostRowError, SourceRefusedError
from gaussdecode.model.relation import Column, Relation, ReplicaIdentity
from gaussdecode.model.shape import Definition, Shape, ShapeColumn
from gaussdecode.model.title import table_title
from gaussdecode.model.types import column_type, is_built_in, type_oid
from gaussdecode.source.catalog import CatalogTable
from gaussdecode.source.gaussdb._spill import Record, Spill
from gaussdecode.source.gaussdb.catalog import CatalogType
from gaussdecode.source.gaussdb.identity import Identity, Nulls, judge
from gaussdecode.source.relations import WhiteList

_OWN_OIDS: Final = 0xFFFF0000  # downwards from here; pg_class OIDs rarely get there
_MODIFIER: Final = re.compile(r"\([0-9, ]*\)")
_CLOB: Final = ("clob", "text")  # the text styles print the first as the second

Table = tuple[str, str]


class TableCatalog(Protocol):
    """The part of the catalogue that is used here; see `catalog.GaussCatalog`."""

    def look_up_table(self, schema: str, name: str) -> CatalogTable | None:
        """Give the table as it is now, or None when there is none of the name."""

    def types(self, oids: Iterable[int]) -> Mapping[int, CatalogType]:
        """Give the types of these OIDs, as far as there are any."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    """The remembered state of one table."""

    relation: Relation
    has_gaps: bool = False
    flips: int = 0

    def to_record(self) -> Record:
        return {"relation": self.relation.to_record(), "gaps": self.has_gaps, "flips": self.flips}

    def identity(self) -> Identity:
        names = frozenset(column.name for column in self.relation.columns if column.is_identity)
        return Identity(self.relation.identity, names, self.has_gaps, self.flips)


class GaussRelations:
    """Numbers relation versions of one connection.

    Args:
        white_list: wanted tables.
        catalog: catalogue of the server, or None; its errors are passed on.
        spill: store for versions of quiet tables, or None to keep all in memory.
        left_out: titles of tables whose rows are stepped over, whatever they hold.
        nulls: how NULLs appear in old tuples.
    """

    def __init__(
        self,
        white_list: WhiteList,
        catalog: TableCatalog | None = None,
        spill: Spill | None = None,
        left_out: Iterable[str] = (),
        nulls: Nulls = Nulls.SENT,
    ) -> None:
        self._nulls = nulls
        self._left_out = frozenset(left_out)
        self._white_list = white_list
        self._catalog = catalog
        self._known = spill if spill is not None else Spill()
        self._oids: dict[int, Table] = {}
        self._last_version = 0

    def define(self, shape: Shape) -> Definition:
        """Say how rows of a shape are to be translated.

        Args:
            shape: shape of a row that the translator does not know.

        Returns:
            The version that describes it: a new one, or one that was only spelled otherwise.

        Raises:
            LostRowError: a row without columns of a table that has some, or without the names of its columns,
                which nobody knows any more.
            SourceError: the catalogue cannot be read now.
            SourceRefusedError: only the catalogue could tell, and it does not.
        """
        table, catalog = self._choose(shape)
        record = self._known.get(table)
        before = None if record is None else _from_record(record)
        if not self._white_list.allows(*table) or table_title(*table) in self._left_out:
            return self._filtered(table, before)
        if catalog is None and self._catalog is not None:
            catalog = self._catalog.look_up_table(*table)
        shape = _named(shape, table, before, catalog)
        _check_lost(shape, table, before, catalog, self._nulls)
        columns = self._columns(shape, before, catalog)
        identity = judge(
            shape,
            frozenset(column.name for column in columns),
            None if before is None else before.identity(),
            catalog,
            self._nulls,
        )
        oid, is_known = self._oid(table, before, catalog)
        relation = Relation(
            0 if before is None else before.relation.version,
            oid,
            *table,
            identity.letter,
            tuple(_marked(column, column.name in identity.names) for column in columns),
            is_oid_known=is_known,
        )
        is_new = before is None or relation != before.relation
        if is_new:
            self._last_version += 1
            relation = dataclasses.replace(relation, version=self._last_version)
        known = _Known(relation, identity.has_gaps, identity.flips)
        self._known.put(table, known.to_record())
        takes_bare = self._nulls is not Nulls.SENT and identity.letter is ReplicaIdentity.FULL
        return Definition(relation, is_new, identity.has_gaps, takes_bare, identity.is_speculative)

    def _choose(self, shape: Shape) -> tuple[Table, CatalogTable | None]:
        """Find out which table a row in text style names; most often there is one way."""
        if len(shape.tables) == 1:
            return shape.tables[0], None
        wanted = [table for table in shape.tables if self._white_list.allows(*table)]
        if not wanted:
            return shape.tables[0], None
        known = [table for table in wanted if self._known.get(table) is not None]
        found = [(table, None) for table in known]
        if len(found) != 1 and self._catalog is not None:
            asked = ((table, self._catalog.look_up_table(*table)) for table in wanted)
            there = [(table, described) for table, described in asked if described is not None]
            fitting = [pair for pair in there if _fits(shape, pair[1])]
            return _only(fitting or there, shape)
        return _only(found or [(table, None) for table in wanted], shape)

    def _filtered(self, table: Table, before: _Known | None) -> Definition:
        """Describe a table that nobody wants: its rows are stepped over, whatever they hold."""
        if before is not None:
            return Definition(before.relation, False)
        self._last_version += 1
        oid, _ = self._oid(table, None, None)
        relation = Relation(
            self._last_version,
            oid,
            *table,
            ReplicaIdentity.NOTHING,
            (),
            is_filtered=True,
            is_oid_known=False,
        )
        self._known.put(table, _Known(relation).to_record())
        return Definition(relation, True)

    def _oid(
        self, table: Table, before: _Known | None, catalog: CatalogTable | None
    ) -> tuple[int, bool]:
        """Give a table its number; it stays the same, since decoders know tables by it."""
        if before is not None:
            return before.relation.oid, before.relation.is_oid_known
        if catalog is not None and self._oids.setdefault(catalog.oid, table) == table:
            return catalog.oid, True
        oid = _OWN_OIDS - len(self._oids)
        while oid in self._oids:
            oid -= 1
        self._oids[oid] = table
        return oid, False

    # ---- columns

    def _columns(
        self, shape: Shape, before: _Known | None, catalog: CatalogTable | None
    ) -> list[Column]:
        """Resolve the columns of the table: of the row, as it was known, or as it is now."""
        if shape.new is not None:
            return self._resolved(shape.new, before, catalog)
        old = {column.name: column for column in shape.old or ()}
        if before is not None and _agrees(old, before.relation):
            return list(before.relation.columns)
        if catalog is not None and old.keys() <= {column.name for column in catalog.columns}:
            is_by_name = any(column.type_name for column in old.values())
            listed = [
                old.get(column.name)
                or ShapeColumn(
                    column.name,
                    0 if is_by_name else column.type_oid,
                    _bare(column.type_text) if is_by_name else "",
                )
                for column in catalog.columns
            ]
            return self._resolved(listed, before, catalog)
        return self._resolved(shape.old or (), before, catalog)

    def _resolved(
        self, columns: Iterable[ShapeColumn], before: _Known | None, catalog: CatalogTable | None
    ) -> list[Column]:
        listed = list(columns)
        places = [_place(column, before, catalog) for column in listed]
        user_oids = {oid for oid, _ in places if oid and not is_built_in(oid)}
        types: Mapping[int, CatalogType] = {}
        if user_oids and self._catalog is not None:
            types = self._catalog.types(user_oids)
        resolved = []
        for column, (oid, modifier) in zip(listed, places, strict=True):
            held, spelling = column_type(oid, modifier, _user_type(oid, types))
            if not oid:
                spelling = column.type_name
            resolved.append(Column(column.name, oid, modifier, spelling, held, False))
        return resolved


# ---- tables


def _only(
    found: Sequence[tuple[Table, CatalogTable | None]], shape: Shape
) -> tuple[Table, CatalogTable | None]:
    if len(found) == 1:
        return found[0]
    ways = ", ".join(f'"{schema}"."{name}"' for schema, name in shape.tables)
    raise SourceRefusedError(
        f"the text style does not quote names, and one with a blank can be read as {ways}. "
        f"{'Several' if found else 'None'} of these exist: use decode-style b or j"
    )


def _fits(shape: Shape, catalog: CatalogTable) -> bool:
    """Whether a table has the columns of a row."""
    names = {column.name for column in (shape.new or ()) + (shape.old or ())}
    return names <= {column.name for column in catalog.columns}


def _named(
    shape: Shape, table: Table, before: _Known | None, catalog: CatalogTable | None
) -> Shape:
    """Name the columns of an INSERT of sql_decoding, which counts on the table's order."""
    if shape.new is None or all(column.name for column in shape.new):
        return shape
    if catalog is not None and len(catalog.columns) == len(shape.new):
        names = [ShapeColumn(column.name, column.type_oid) for column in catalog.columns]
    elif before is not None and len(before.relation.columns) == len(shape.new):
        names = [ShapeColumn(column.name, column.type_oid) for column in before.relation.columns]
    else:
        has = "does not have it" if catalog is None else f"has {len(catalog.columns)} columns now"
        raise LostRowError(
            f"sql_decoding names no columns: a row of {'.'.join(table)} has {len(shape.new)}, and "
            f"the catalogue {has}. Use source.plugin mppdb_decoding",
            table,
        )
    return dataclasses.replace(shape, new=tuple(names))


def _check_lost(
    shape: Shape, table: Table, before: _Known | None, catalog: CatalogTable | None, nulls: Nulls
) -> None:
    """Refuse a row without columns, unless its table has none or all it had was NULL."""
    has_columns = (
        bool(before and before.relation.columns) if catalog is None else bool(catalog.columns)
    )
    is_without = shape.op in ("I", "U") and not shape.new
    if (shape.op in ("I", "U") and shape.new is None) or (
        has_columns and (is_without or (shape.old == () and nulls is Nulls.SENT))
    ):
        raise LostRowError(
            f"the server sent a row of {'.'.join(table)} without its columns (a compressed row, "
            "or one with more columns than the table has now): its content is not in the stream, only "
            "a new snapshot of the table can bring it",
            table,
        )


# ---- types


def _bare(type_text: str) -> str:
    """Spell a type as the stream does: without modifier, a clob as text."""
    bare = type_text if '"' in type_text else _MODIFIER.sub("", type_text)
    return _CLOB[1] if bare == _CLOB[0] else bare


def _is_same(one: str, other: str) -> bool:
    """Whether two spellings mean one type; either may leave out a schema that is searched."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    return "." not in short and long.endswith("." + short)


def _place(
    column: ShapeColumn, before: _Known | None, catalog: CatalogTable | None
) -> tuple[int, int]:
    """Find OID and modifier of a column; the catalogue knows them if it means the same type."""
    described = None if catalog is None else catalog.column(column.name)
    if described is not None and described.type_oid:
        if not column.type_oid and not column.type_name:
            return described.type_oid, described.type_modifier
        if column.type_oid == described.type_oid or (
            column.type_name and _is_same(column.type_name, _bare(described.type_text))
        ):
            return described.type_oid, described.type_modifier
    if catalog is None and before is not None:
        for known in before.relation.columns:
            if known.name == column.name and _has_type(column, known):
                return known.type_oid, known.type_modifier
    return column.type_oid or type_oid(column.type_name) or 0, -1


def _has_type(column: ShapeColumn, known: Column) -> bool:
    """Whether a column may be of the type that it had before, as far as it tells."""
    if column.type_oid:
        return column.type_oid == known.type_oid
    return not column.type_name or _is_same(column.type_name, _bare(known.type_name))


def _user_type(oid: int, types: Mapping[int, CatalogType]) -> tuple[str, str] | None:
    """Name a user's type, or the base of a domain."""
    found = types.get(oid)
    if found is None:
        return None
    bottom = types.get(found.base_oid, found)
    return bottom.schema, bottom.name


def _agrees(old: Mapping[str, ShapeColumn], relation: Relation) -> bool:
    """Whether a version has the columns of an old tuple, with the same types."""
    known = {column.name: column for column in relation.columns}
    for name, column in old.items():
        if name not in known or not _has_type(column, known[name]):
            return False
    return True


def _marked(column: Column, is_identity: bool) -> Column:
    if column.is_identity == is_identity:
        return column
    return dataclasses.replace(column, is_identity=is_identity)


def _from_record(record: Record) -> _Known:
    return _Known(Relation.from_record(record["relation"]), record["gaps"], record["flips"])
