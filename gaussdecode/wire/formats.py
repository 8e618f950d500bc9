"""PostgreSQL's send formats: which function writes which, and whose text is known here.

The numbers are those of `SendFormat` in ``_sent.pxd``; a test holds the two equal. A type is known
by its send function, which domains share with their base: so the formats of a user's types
come from the catalogue of the server.
"""

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import Final


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
    ARRAY = 25
    UNKNOWN = 26  # only the server knows the text


_BY_FUNCTION: Final[Mapping[str, SendFormat]] = {
    **dict.fromkeys(
        ("textsend", "varcharsend", "bpcharsend", "namesend", "json_send", "enum_send"),
        SendFormat.TEXT,
    ),
    "boolsend": SendFormat.BOOL,
    "int2send": SendFormat.INT2,
    "int4send": SendFormat.INT4,
    "int8send": SendFormat.INT8,
    "oidsend": SendFormat.UINT4,
    "xidsend": SendFormat.UINT4,
    "cidsend": SendFormat.UINT4,
    "float4send": SendFormat.FLOAT4,
    "float8send": SendFormat.FLOAT8,
    "numeric_send": SendFormat.NUMERIC,
    "date_send": SendFormat.DATE,
    "timestamp_send": SendFormat.TIMESTAMP,
    "timestamptz_send": SendFormat.TIMESTAMPTZ,
    "interval_send": SendFormat.INTERVAL,
    "byteasend": SendFormat.BYTEA,
    "jsonb_send": SendFormat.VERSIONED,
    "jsonpath_send": SendFormat.VERSIONED,
    "uuid_send": SendFormat.UUID,
    "time_send": SendFormat.TIME,
    "timetz_send": SendFormat.TIMETZ,
    "bit_send": SendFormat.BIT,
    "varbit_send": SendFormat.BIT,
    "inet_send": SendFormat.INET,
    "cidr_send": SendFormat.INET,
    "macaddr_send": SendFormat.MACADDR,
    "macaddr8_send": SendFormat.MACADDR,
    "xid8send": SendFormat.UINT8,
    "pg_lsn_send": SendFormat.LSN,
    "tidsend": SendFormat.TID,
}
_ARRAY: Final = "array_send"


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """How the values of a type are sent; of an array, also its elements."""

    format: SendFormat
    element: SendFormat = SendFormat.NONE


NOT_SENT: Final = Sent(SendFormat.NONE)
UNKNOWN: Final = Sent(SendFormat.UNKNOWN)
Formats = Mapping[int, Sent]


def formats_of(types: Iterable[tuple[int, str, str]]) -> dict[int, Sent]:
    """The formats of those types whose text is known here.

    Args:
        types: OID, name of the send function in ``pg_catalog``, and that of an array's elements.
    """
    found: dict[int, Sent] = {}
    for oid, function, of_elements in types:
        if function == _ARRAY:
            element = _BY_FUNCTION.get(of_elements)
            if element is not None:
                found[oid] = Sent(SendFormat.ARRAY, element)
        elif function in _BY_FUNCTION:
            found[oid] = Sent(_BY_FUNCTION[function])
    return found
