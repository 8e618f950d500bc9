"""PostgreSQL's send formats: which function writes which, and whose text is known here.

The numbers are those of `SendFormat` in ``_formats.pxd``; a test holds the two equal. A type is known
by its pair of functions for sending and printing, and by the types that it consists of: so the formats
of a user's types come from the catalogue of the server.
"""

import dataclasses
import enum
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self


class SendFormat(enum.IntEnum):
    """How a type's send function writes its values."""

    NONE = 0  # binary is off
    TEXT = 1  # as its text is
    BOOL = 2
    INT2 = 3
    INT4 = 4
    INT8 = 5
    UINT4 = 6
    FLOAT4 = 7
    FLOAT8 = 8
    NUMERIC = 9  # groups of four digits
    DATE = 10
    TIMESTAMP = 11
    TIMESTAMPTZ = 12
    INTERVAL = 13
    BYTEA = 14
    VERSIONED = 15  # a byte, then text
    UUID = 16
    TIME = 17
    TIMETZ = 18
    BIT = 19
    INET = 20
    MACADDR = 21
    UINT8 = 22
    LSN = 23
    TID = 24
    CHAR = 25
    SNAPSHOT = 26
    TSVECTOR = 27
    TSQUERY = 28
    POINT = 29
    LSEG = 30
    PATH = 31
    BOX = 32
    POLYGON = 33
    LINE = 34
    CIRCLE = 35
    ARRAY = 36  # those from here on have parts
    VECTOR = 37  # an array that is printed without braces
    RECORD = 38
    RANGE = 39
    MULTIRANGE = 40
    UNKNOWN = 41  # only the server knows the text


# By function for sending: the function for printing whose text is known from it, and the format.
_BY_FUNCTION: Final[Mapping[str, tuple[str, SendFormat]]] = {
    "textsend": ("textout", SendFormat.TEXT),
    "varcharsend": ("varcharout", SendFormat.TEXT),
    "bpcharsend": ("bpcharout", SendFormat.TEXT),
    "namesend": ("nameout", SendFormat.TEXT),
    "json_send": ("json_out", SendFormat.TEXT),
    "enum_send": ("enum_out", SendFormat.TEXT),
    "xml_send": ("xml_out", SendFormat.TEXT),
    "boolsend": ("boolout", SendFormat.BOOL),
    "int2send": ("int2out", SendFormat.INT2),
    "int4send": ("int4out", SendFormat.INT4),
    "int8send": ("int8out", SendFormat.INT8),
    "oidsend": ("oidout", SendFormat.UINT4),
    "xidsend": ("xidout", SendFormat.UINT4),
    "cidsend": ("cidout", SendFormat.UINT4),
    "float4send": ("float4out", SendFormat.FLOAT4),
    "float8send": ("float8out", SendFormat.FLOAT8),
    "numeric_send": ("numeric_out", SendFormat.NUMERIC),
    "date_send": ("date_out", SendFormat.DATE),
    "timestamp_send": ("timestamp_out", SendFormat.TIMESTAMP),
    "timestamptz_send": ("timestamptz_out", SendFormat.TIMESTAMPTZ),
    "interval_send": ("interval_out", SendFormat.INTERVAL),
    "byteasend": ("byteaout", SendFormat.BYTEA),
    "jsonb_send": ("jsonb_out", SendFormat.VERSIONED),
    "jsonpath_send": ("jsonpath_out", SendFormat.VERSIONED),
    "uuid_send": ("uuid_out", SendFormat.UUID),
    "time_send": ("time_out", SendFormat.TIME),
    "timetz_send": ("timetz_out", SendFormat.TIMETZ),
    "bit_send": ("bit_out", SendFormat.BIT),
    "varbit_send": ("varbit_out", SendFormat.BIT),
    "inet_send": ("inet_out", SendFormat.INET),
    "cidr_send": ("cidr_out", SendFormat.INET),
    "macaddr_send": ("macaddr_out", SendFormat.MACADDR),
    "macaddr8_send": ("macaddr8_out", SendFormat.MACADDR),
    "xid8send": ("xid8out", SendFormat.UINT8),
    "pg_lsn_send": ("pg_lsn_out", SendFormat.LSN),
    "tidsend": ("tidout", SendFormat.TID),
    "charsend": ("charout", SendFormat.CHAR),
    "pg_snapshot_send": ("pg_snapshot_out", SendFormat.SNAPSHOT),
    "tsvectorsend": ("tsvectorout", SendFormat.TSVECTOR),
    "tsquerysend": ("tsqueryout", SendFormat.TSQUERY),
    "point_send": ("point_out", SendFormat.POINT),
    "lseg_send": ("lseg_out", SendFormat.LSEG),
    "path_send": ("path_out", SendFormat.PATH),
    "box_send": ("box_out", SendFormat.BOX),
    "poly_send": ("poly_out", SendFormat.POLYGON),
    "line_send": ("line_out", SendFormat.LINE),
    "circle_send": ("circle_out", SendFormat.CIRCLE),
    "array_send": ("array_out", SendFormat.ARRAY),
    "int2vectorsend": ("int2vectorout", SendFormat.VECTOR),
    "oidvectorsend": ("oidvectorout", SendFormat.VECTOR),
    "record_send": ("record_out", SendFormat.RECORD),
    "range_send": ("range_out", SendFormat.RANGE),
    "multirange_send": ("multirange_out", SendFormat.MULTIRANGE),
}
_MOST_NODES: Final = 1000  # of one type with all that it consists of; arbitrary
_NODE: Final = struct.Struct("=IIHBB")
NODE_BYTES: Final = _NODE.size


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """How the values of a type are sent.

    Attributes:
        format: of the value.
        parts: types that it consists of: of an array's elements, of a range's bounds, each that
            attributes of a composite have.
        oid: of the type, which values in a composite say.
        delimiter: between the elements of an array.
    """

    format: SendFormat
    parts: tuple["Sent", ...] = ()
    oid: int = 0
    delimiter: str = ","

    def size(self) -> int:
        """How many nodes it takes."""
        return 1 + sum(part.size() for part in self.parts)

    def to_record(self) -> list[Any]:  # Any: JSON
        """Make it fit for JSON."""
        parts = [part.to_record() for part in self.parts]
        return [self.format.name, self.oid, self.delimiter, *parts]

    @classmethod
    def from_record(cls, record: Sequence[Any]) -> Self:  # Any: JSON
        """Rebuild what `to_record` wrote; KeyError for a format that is not known."""
        name, oid, delimiter, *parts = record
        return cls(SendFormat[name], tuple(map(cls.from_record, parts)), oid, delimiter)


UNKNOWN: Final = Sent(SendFormat.UNKNOWN)
Formats = Mapping[int, Sent]


class TypeFacts(NamedTuple):
    """What the catalogue says of a type; 0 and empty where it has no such thing.

    Attributes:
        oid: of the type.
        send: function that writes its values for the wire, where it is one of the server's own.
        output: same, of the one that prints them.
        base: of a domain.
        element: of an array.
        delimiter: between elements of this type.
        subtype: of a range; of a multirange its range.
        attributes: types of a composite's, in order.
    """

    oid: int
    send: str
    output: str
    base: int = 0
    element: int = 0
    delimiter: str = ","
    subtype: int = 0
    attributes: tuple[int, ...] = ()


def formats_of(types: Iterable[TypeFacts]) -> dict[int, Sent]:
    """The formats of those types whose text is known here."""
    facts = {each.oid: each for each in types}
    found: dict[int, Sent | None] = {}
    for oid in facts:
        _find(oid, facts, found)
    return {oid: sent for oid, sent in found.items() if sent is not None}


def _find(oid: int, facts: Mapping[int, TypeFacts], found: dict[int, Sent | None]) -> Sent | None:
    """How a type is sent; None where its text, or that of a part, is not known."""
    if oid in found or oid not in facts:
        return found.get(oid)
    found[oid] = None  # for a type that leads to itself
    each = facts[oid]
    if each.base:
        base = _find(each.base, facts, found)
        found[oid] = base and dataclasses.replace(base, oid=oid)
        return found[oid]
    output, form = _BY_FUNCTION.get(each.send, ("", SendFormat.UNKNOWN))
    if output != each.output or form is SendFormat.UNKNOWN:
        return None
    parts = [_find(part, facts, found) for part in _parts(each, form)]
    known = tuple(part for part in parts if part is not None)
    delimiter = facts[each.element].delimiter if each.element in facts else ","
    sent = Sent(form, known, oid, delimiter)
    if len(known) == len(parts) and sent.size() <= _MOST_NODES:
        found[oid] = sent
    return found[oid]


def _parts(each: TypeFacts, form: SendFormat) -> Sequence[int]:
    """Types that values of a type consist of, each once."""
    if form in {SendFormat.ARRAY, SendFormat.VECTOR}:
        return [each.element]
    if form in {SendFormat.RANGE, SendFormat.MULTIRANGE}:
        return [each.subtype]
    return list(dict.fromkeys(each.attributes))


def nodes_of(types: Sequence[Sent]) -> bytes:
    """The SentNode of each type, in order, and behind them those of their parts."""
    nodes = list(types)
    packed = []
    for index, node in enumerate(nodes):  # which grows
        first = len(nodes) - index if node.parts else 0
        nodes += node.parts
        packed.append(
            _NODE.pack(node.oid, first, len(node.parts), node.format, ord(node.delimiter))
        )
    return b"".join(packed)
