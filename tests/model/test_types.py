"""How columns are held, from what the wire says about their type."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.texts import column_types

from gaussdecode.model.types import ColumnType, Kind, column_type, is_built_in, type_oid


def modifier(precision: int, scale: int) -> int:
    """Type modifier of numeric(precision, scale)."""
    return (precision << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize(
    ("oid", "kind", "spelling"),
    [
        (16, Kind.BOOL, "boolean"),
        (17, Kind.BINARY, "bytea"),
        (18, Kind.STRING, '"char"'),
        (20, Kind.INT64, "bigint"),
        (21, Kind.INT16, "smallint"),
        (23, Kind.INT32, "integer"),
        (25, Kind.STRING, "text"),
        (26, Kind.INT64, "oid"),
        (28, Kind.STRING, "xid"),
        (86, Kind.BINARY, "raw"),
        (88, Kind.BINARY, "blob"),
        (90, Kind.STRING, "clob"),
        (3969, Kind.STRING, "nvarchar2"),
        (5545, Kind.INT16, "tinyint"),
        (9003, Kind.TIMESTAMP, "smalldatetime"),
        (700, Kind.FLOAT32, "real"),
        (701, Kind.FLOAT64, "double precision"),
        (790, Kind.STRING, "money"),
        (1042, Kind.STRING, "character"),
        (1043, Kind.STRING, "character varying"),
        (1082, Kind.DATE, "date"),
        (1083, Kind.STRING, "time without time zone"),
        (1114, Kind.TIMESTAMP, "timestamp without time zone"),
        (1184, Kind.TIMESTAMPTZ, "timestamp with time zone"),
        (1186, Kind.INTERVAL, "interval"),
        (1266, Kind.STRING, "time with time zone"),
        (1562, Kind.STRING, "bit varying"),
        (2950, Kind.STRING, "uuid"),
        (3802, Kind.STRING, "jsonb"),
        (3904, Kind.STRING, "int4range"),
        (5069, Kind.STRING, "xid8"),
        (22, Kind.STRING, "int2vector"),
        (1020, Kind.STRING, "box[]"),
        (9999, Kind.STRING, "type 9999"),
    ],
)
def test_built_in_types(oid: int, kind: Kind, spelling: str) -> None:
    """Each built-in type has its kind, and the name the server prints."""
    assert column_type(oid, -1, None) == (ColumnType(kind), spelling)


@pytest.mark.parametrize(
    ("oid", "element", "spelling"),
    [
        (1007, Kind.INT32, "integer[]"),
        (1015, Kind.STRING, "character varying[]"),
        (1115, Kind.TIMESTAMP, "timestamp without time zone[]"),
        (1187, Kind.INTERVAL, "interval[]"),
        (2951, Kind.STRING, "uuid[]"),
        (1231, Kind.STRING, "numeric[]"),
    ],
)
def test_arrays_are_lists(oid: int, element: Kind, spelling: str) -> None:
    """An array of a built-in type is a list of its kind."""
    assert column_type(oid, -1, None) == (ColumnType(Kind.LIST, element), spelling)


@pytest.mark.parametrize(
    ("precision", "scale", "held"),
    [
        (10, 2, (10, 2)),
        (38, 0, (38, 0)),
        (38, 38, (38, 38)),
        (5, -2, (7, 0)),
        (3, 5, (5, 5)),
        (36, -2, (38, 0)),
        (37, -2, None),
        (2, 39, None),
        (39, 0, None),
        (1000, 1000, None),
        (1, -1000, None),
    ],
)
def test_numeric_is_held_so_that_every_value_fits(
    precision: int, scale: int, held: tuple[int, int] | None
) -> None:
    """Scales below zero and above the precision widen the decimal, up to 38 digits."""
    expected = (
        ColumnType(Kind.STRING)
        if held is None
        else ColumnType(Kind.DECIMAL, precision=held[0], scale=held[1])
    )
    assert column_type(1700, modifier(precision, scale), None) == (expected, "numeric")
    element = ColumnType(Kind.LIST, expected.kind, expected.precision, expected.scale)
    assert column_type(1231, modifier(precision, scale), None) == (element, "numeric[]")


@pytest.mark.parametrize(
    ("user_type", "held", "spelling"),
    [
        (("", "int4"), ColumnType(Kind.INT32), "integer"),
        (("pg_catalog", "timestamptz"), ColumnType(Kind.TIMESTAMPTZ), "timestamp with time zone"),
        (("", "_int4"), ColumnType(Kind.LIST, Kind.INT32), "integer[]"),
        (("", "numeric"), ColumnType(Kind.STRING), "numeric"),
        (("public", "int4"), ColumnType(Kind.STRING), "public.int4"),
        (("public", "mood"), ColumnType(Kind.STRING), "public.mood"),
        (("My Schema", 'a"b'), ColumnType(Kind.STRING), '"My Schema"."a""b"'),
        (("", "something"), ColumnType(Kind.STRING), "pg_catalog.something"),
    ],
)
def test_user_types(user_type: tuple[str, str], held: ColumnType, spelling: str) -> None:
    """A domain is held as its base type, everything else of a user as text."""
    assert column_type(16500, -1, user_type) == (held, spelling)


@given(st.integers(0, 2**32 - 1), st.integers(-(2**31), 2**31 - 1))
def test_any_modifier_gives_a_type(oid: int, type_modifier: int) -> None:
    """Whatever arrives, the column can be held."""
    for chosen in (oid, 1700, 1231):
        held, spelling = column_type(chosen, type_modifier, None)
        assert spelling
        assert held.precision <= 38


@given(column_types())
def test_record_comes_back(held: ColumnType) -> None:
    """A type survives JSON."""
    assert ColumnType.from_record(held.to_record()) == held


@pytest.mark.parametrize(
    "arguments",
    [
        (Kind.LIST,),
        (Kind.LIST, Kind.LIST),
        (Kind.INT32, Kind.INT32),
        (Kind.DECIMAL,),
        (Kind.INT32, None, 5),
        (Kind.DECIMAL, None, 39, 0),
        (Kind.DECIMAL, None, 5, 6),
    ],
)
def test_impossible_types_are_refused(arguments: tuple[Kind, Kind | None, int, int]) -> None:
    """A type that could not be written cannot be made."""
    with pytest.raises(ValueError, match=r"with|held"):
        ColumnType(*arguments)


@pytest.mark.parametrize(
    ("spelling", "oid"),
    [
        ("integer", 23), ("character varying", 1043), ("numeric[]", 1231), ("tinyint", 5545),
        ("timestamp without time zone", 1114), ('"char"', 18), ("mood", None), ("int4", None),
    ],
)  # fmt: skip
def test_types_by_their_spelling(spelling: str, oid: int | None) -> None:
    """Styles that name types mean the same ones; a user's type is nobody's."""
    assert type_oid(spelling) == oid
    assert oid is None or is_built_in(oid)


def test_wide_integers_are_decimals() -> None:
    """An integer of 128 bits takes all the digits that a decimal has."""
    assert column_type(34, -1, None) == (ColumnType(Kind.DECIMAL, precision=38), "int16")
