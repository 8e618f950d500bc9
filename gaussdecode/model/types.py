"""Choose the kind of column that holds the values of a type.

Given a type's OID, its modifier and, for a user's type, the name that its Type message carried, `column_type`
gives the `Kind`. It knows nothing of the catalogue: a type that the wire does not describe is held as text, so
that nothing is lost. Types come from the stream alone. If domains were looked up in the catalogue, the same
WAL would land differently after an ALTER DOMAIN, and a catalogue that does not answer would stop the stream.

Values that their kind cannot hold (Infinity, BC, years past 9999, numbers with too many digits, arrays of
several dimensions) become NULL in the decoder, and their text is kept beside the row.
"""

import dataclasses
import enum
from typing import Any, Final, Self

from gaussdecode.model.sqlnames import name_as_needed

MAX_DECIMAL_PRECISION: Final = 38  # of decimal128; readers refuse more


class Kind(enum.IntEnum):
    """How a column is held; the numbers are those of `ColumnKind` in ``_layout.pxd``.

    The Arrow type of each is in the comment; decimals take precision and scale from
    their `ColumnType`, lists their element.
    """

    BOOL = 1  # bool
    INT16 = 2  # int16
    INT32 = 3  # int32
    INT64 = 4  # int64
    FLOAT32 = 5  # float32
    FLOAT64 = 6  # float64
    DECIMAL = 7  # decimal128(precision, scale)
    DATE = 8  # date32
    TIMESTAMP = 9  # timestamp[us]
    TIMESTAMPTZ = 10  # timestamp[us, UTC]
    STRING = 11  # string
    BINARY = 12  # binary
    INTERVAL = 13  # struct<months: int32, days: int32, micros: int64>
    LIST = 14  # list<element>


@dataclasses.dataclass(frozen=True, slots=True)
class ColumnType:
    """The kind of a column with its parameters.

    Attributes:
        kind: how values are held.
        element: kind of a list's elements; None for all other kinds.
        precision: digits of a decimal (or of a list's decimal elements), 1 to 38, else 0.
        scale: digits after the point, 0 to precision, else 0.
    """

    kind: Kind
    element: Kind | None = None
    precision: int = 0
    scale: int = 0

    def __post_init__(self) -> None:
        if (self.kind is Kind.LIST) != (self.element is not None) or self.element is Kind.LIST:
            raise ValueError(f"{self.kind.name} with element {self.element!r}")
        if (Kind.DECIMAL in (self.kind, self.element)) != (self.precision > 0):
            raise ValueError(f"{self.kind.name} with precision {self.precision}")
        if not 0 <= self.scale <= self.precision <= MAX_DECIMAL_PRECISION:
            raise ValueError(f"decimal({self.precision},{self.scale}) cannot be held")

    def to_record(self) -> dict[str, Any]:  # Any: JSON
        """Make it fit for JSON: ``{"kind": "list", "element": "int32"}``."""
        record: dict[str, Any] = {"kind": self.kind.name.lower()}  # Any: JSON
        if self.element is not None:
            record["element"] = self.element.name.lower()
        if self.precision:
            record["precision"] = self.precision
            record["scale"] = self.scale
        return record

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:  # Any: JSON
        """Rebuild what `to_record` wrote."""
        element = record.get("element")
        return cls(
            Kind[record["kind"].upper()],
            None if element is None else Kind[element.upper()],
            record.get("precision", 0),
            record.get("scale", 0),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class _BuiltIn:
    """One built-in type: its internal name, the server's spelling, and our kind."""

    name: str
    spelling: str
    kind: Kind = Kind.STRING


_NUMERIC_OID: Final = 1700
_NUMERICS: Final = frozenset({_NUMERIC_OID, 1231})  # its array
_HEADLESS: Final = frozenset({86, 88})  # raw, blob; of GaussDB alone
_INT16_OID: Final = 34

# Types that are not held as text, and text types whose spelling differs from their name.
_SPELLED: Final[dict[int, _BuiltIn]] = {
    16: _BuiltIn("bool", "boolean", Kind.BOOL),
    17: _BuiltIn("bytea", "bytea", Kind.BINARY),
    18: _BuiltIn("char", '"char"'),
    20: _BuiltIn("int8", "bigint", Kind.INT64),
    21: _BuiltIn("int2", "smallint", Kind.INT16),
    23: _BuiltIn("int4", "integer", Kind.INT32),
    26: _BuiltIn("oid", "oid", Kind.INT64),
    700: _BuiltIn("float4", "real", Kind.FLOAT32),
    701: _BuiltIn("float8", "double precision", Kind.FLOAT64),
    1042: _BuiltIn("bpchar", "character"),
    1043: _BuiltIn("varchar", "character varying"),
    1082: _BuiltIn("date", "date", Kind.DATE),
    1083: _BuiltIn("time", "time without time zone"),
    1114: _BuiltIn("timestamp", "timestamp without time zone", Kind.TIMESTAMP),
    1184: _BuiltIn("timestamptz", "timestamp with time zone", Kind.TIMESTAMPTZ),
    1186: _BuiltIn("interval", "interval", Kind.INTERVAL),
    1266: _BuiltIn("timetz", "time with time zone"),
    1560: _BuiltIn("bit", "bit"),
    1562: _BuiltIn("varbit", "bit varying"),
    _NUMERIC_OID: _BuiltIn("numeric", "numeric", Kind.DECIMAL),
    # openGauss's own. An int1 has no sign; an int16 is an integer of 128 bits, whose largest
    # values have a digit more than a decimal holds, and stay text then.
    _INT16_OID: _BuiltIn("int16", "int16", Kind.DECIMAL),
    86: _BuiltIn("raw", "raw", Kind.BINARY),
    88: _BuiltIn("blob", "blob", Kind.BINARY),
    90: _BuiltIn("clob", "clob"),
    3969: _BuiltIn("nvarchar2", "nvarchar2"),
    5545: _BuiltIn("int1", "tinyint", Kind.INT16),
    9003: _BuiltIn("smalldatetime", "smalldatetime", Kind.TIMESTAMP),
}

# Types held as the server's exact text, spelled as they are named: OID by name.
_TEXTS: Final[dict[str, int]] = {
    "name": 19, "int2vector": 22, "regproc": 24, "text": 25, "tid": 27, "xid": 28, "cid": 29,
    "oidvector": 30, "json": 114, "xml": 142, "pg_node_tree": 194, "point": 600, "lseg": 601,
    "path": 602, "box": 603, "polygon": 604, "line": 628, "cidr": 650, "circle": 718,
    "macaddr8": 774, "money": 790, "macaddr": 829, "inet": 869, "aclitem": 1033,
    "refcursor": 1790, "regprocedure": 2202, "regoper": 2203, "regoperator": 2204,
    "regclass": 2205, "regtype": 2206, "uuid": 2950, "txid_snapshot": 2970, "pg_lsn": 3220,
    "pg_ndistinct": 3361, "pg_dependencies": 3402, "tsvector": 3614, "tsquery": 3615,
    "gtsvector": 3642, "regconfig": 3734, "regdictionary": 3769, "jsonb": 3802,
    "int4range": 3904, "numrange": 3906, "tsrange": 3908, "tstzrange": 3910,
    "daterange": 3912, "int8range": 3926, "jsonpath": 4072, "regnamespace": 4089,
    "regrole": 4096, "regcollation": 4191, "int4multirange": 4451, "nummultirange": 4532,
    "tsmultirange": 4533, "tstzmultirange": 4534, "datemultirange": 4535,
    "int8multirange": 4536, "pg_mcv_list": 5017, "pg_snapshot": 5038, "xid8": 5069,
}  # fmt: skip

_BUILT_IN: Final[dict[int, _BuiltIn]] = _SPELLED | {
    oid: _BuiltIn(name, name) for name, oid in _TEXTS.items()
}

# OID of the element by OID of the array.
_ELEMENT: Final[dict[int, int]] = {
    143: 142, 199: 114, 271: 5069, 629: 628, 651: 650, 719: 718, 775: 774, 791: 790, 1000: 16,
    1001: 17, 1002: 18, 1003: 19, 1005: 21, 1006: 22, 1007: 23, 1008: 24, 1009: 25, 1010: 27,
    1011: 28, 1012: 29, 1013: 30, 1014: 1042, 1015: 1043, 1016: 20, 1017: 600, 1018: 601,
    1019: 602, 1020: 603, 1021: 700, 1022: 701, 1027: 604, 1028: 26, 1034: 1033, 1040: 829,
    1041: 869, 1115: 1114, 1182: 1082, 1183: 1083, 1185: 1184, 1187: 1186, 1231: 1700,
    1270: 1266, 1561: 1560, 1563: 1562, 2201: 1790, 2207: 2202, 2208: 2203, 2209: 2204,
    2210: 2205, 2211: 2206, 2949: 2970, 2951: 2950, 3221: 3220, 3643: 3614, 3644: 3642,
    3645: 3615, 3735: 3734, 3770: 3769, 3807: 3802, 3905: 3904, 3907: 3906, 3909: 3908,
    3911: 3910, 3913: 3912, 3927: 3926, 4073: 4072, 4090: 4089, 4097: 4096, 4192: 4191,
    5039: 5038, 6150: 4451, 6151: 4532, 6152: 4533, 6153: 4534, 6155: 4535, 6157: 4536,
}  # fmt: skip

# The one built-in whose array elements are separated by a semicolon, not a comma.
_BOX_OID: Final = 603

_OID_BY_NAME: Final[dict[str, int]] = {
    built_in.name: oid for oid, built_in in _BUILT_IN.items()
} | {"_" + _BUILT_IN[element].name: array for array, element in _ELEMENT.items()}

_OID_BY_SPELLING: Final[dict[str, int]] = {
    built_in.spelling: oid for oid, built_in in _BUILT_IN.items()
} | {_BUILT_IN[element].spelling + "[]": array for array, element in _ELEMENT.items()}

_TEXT: Final = ColumnType(Kind.STRING)
_TYPMOD_HEADER: Final = 4  # the server adds VARHDRSZ to a numeric's modifier
_SCALE_MASK: Final = 0x7FF  # 11 bits, two's complement since PostgreSQL 15
_SCALE_SIGN: Final = 0x400


def column_type(
    type_oid: int, type_modifier: int, user_type: tuple[str, str] | None
) -> tuple[ColumnType, str]:
    """Say how the values of a column are held.

    Args:
        type_oid: pg_type.oid from the Relation message.
        type_modifier: pg_attribute.atttypmod, -1 for none.
        user_type: namespace and name of the Type message with this OID, or None when
            there was none. For a domain the server sends its base type's name, without
            the domain's modifier.

    Returns:
        The column type, and the server's spelling of the type without modifier
        (``format_type``), which for a domain is that of its base.

    References:
        PostgreSQL, logicalrep_write_typ() and numerictypmodin().
    """
    if user_type is not None:
        namespace, name = user_type
        known = _OID_BY_NAME.get(name) if namespace in ("", "pg_catalog") else None
        if known is None:
            return _TEXT, f"{name_as_needed(namespace or 'pg_catalog')}.{name_as_needed(name)}"
        type_oid = known
    if type_oid in _ELEMENT:
        return _array_type(_ELEMENT[type_oid], type_modifier)
    built_in = _BUILT_IN.get(type_oid)
    if built_in is None:
        return _TEXT, f"type {type_oid}"
    return _scalar_type(built_in, type_modifier), built_in.spelling


def is_headless_hex(oid: int) -> bool:
    """Whether GaussDB prints a type as hex digits without a head: raw and blob."""
    return oid in _HEADLESS


def is_number_as_text(oid: int, held: ColumnType) -> bool:
    """Whether values are numerics, or arrays of them, that are held as text.

    As a decimal a number is understood in any spelling; as text it must be one and the same.
    """
    return oid in _NUMERICS and Kind.DECIMAL not in (held.kind, held.element)


def is_numeric(oid: int) -> bool:
    """Whether values are numerics, or arrays of them."""
    return oid in _NUMERICS


def is_built_in(oid: int) -> bool:
    """Whether a type is known by its OID alone."""
    return oid in _BUILT_IN or oid in _ELEMENT


def spelled_type(oid: int) -> str:
    """Spell a type as the server does; of those that it has itself."""
    if oid in _ELEMENT:
        return f"{_BUILT_IN[_ELEMENT[oid]].spelling}[]"
    return _BUILT_IN[oid].spelling if oid in _BUILT_IN else f"type {oid}"


def type_oid(spelling: str) -> int | None:
    """Find a built-in type by the server's spelling without modifier, or None."""
    return _OID_BY_SPELLING.get(spelling)


def internal_name(spelling: str) -> str | None:
    """The name in pg_type of a built-in type, by the server's spelling without modifier, or None."""
    oid = type_oid(spelling)
    if oid is None:
        return None
    return f"_{_BUILT_IN[_ELEMENT[oid]].name}" if oid in _ELEMENT else _BUILT_IN[oid].name


def _scalar_type(built_in: _BuiltIn, type_modifier: int) -> ColumnType:
    if built_in is _BUILT_IN[_INT16_OID]:
        return ColumnType(Kind.DECIMAL, precision=MAX_DECIMAL_PRECISION)
    if built_in.kind is Kind.DECIMAL:
        return _numeric_type(type_modifier)
    return ColumnType(built_in.kind)


def _array_type(element_oid: int, type_modifier: int) -> tuple[ColumnType, str]:
    built_in = _BUILT_IN[element_oid]
    spelling = built_in.spelling + "[]"
    if element_oid == _BOX_OID:
        return _TEXT, spelling
    element = _scalar_type(built_in, type_modifier)
    return ColumnType(Kind.LIST, element.kind, element.precision, element.scale), spelling


def _numeric_type(type_modifier: int) -> ColumnType:
    """Widen a numeric until every value fits, or fall back to text.

    ``numeric(5,-2)`` holds up to 9999900, seven digits; ``numeric(3,5)`` up to 0.00999,
    five digits after the point. A decimal's scale is neither negative nor above its
    precision.
    """
    if type_modifier < _TYPMOD_HEADER:
        return _TEXT
    modifier = type_modifier - _TYPMOD_HEADER
    precision = modifier >> 16 & 0xFFFF
    scale = ((modifier & _SCALE_MASK) ^ _SCALE_SIGN) - _SCALE_SIGN
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    if not 0 < precision <= MAX_DECIMAL_PRECISION:
        return _TEXT
    return ColumnType(Kind.DECIMAL, precision=precision, scale=scale)
