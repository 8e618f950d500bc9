"""Types of openGauss, and how its output functions spell their values.

A value is held as PostgreSQL prints it with ISO dates and UTC; `Printer` turns that into
what an openGauss of one version and one set of database settings prints.
"""

import dataclasses
import datetime as dt
import re
import struct
from typing import Final, NamedTuple

from kit.gaussprofile import Profile

INT1, NVARCHAR2, SMALLDATETIME, BLOB, RAW, CLOB = 5545, 3969, 9003, 88, 86, 90
FLOAT4, FLOAT8, NUMERIC, TIMESTAMPTZ = 700, 701, 1700, 1184
_ARRAYS: Final = {1231: NUMERIC, 1021: FLOAT4, 1022: FLOAT8}
# OIDs at which openGauss has something else than PostgreSQL 15 does not matter to us, but
# these names and OIDs are its own.
OWN_TYPES: Final = {
    INT1: ("int1", "tinyint", 1, "N"),
    NVARCHAR2: ("nvarchar2", "nvarchar2", -1, "S"),
    SMALLDATETIME: ("smalldatetime", "smalldatetime", 8, "D"),
    BLOB: ("blob", "blob", -1, "U"),
    RAW: ("raw", "raw", -1, "U"),
    CLOB: ("clob", "clob", -1, "S"),
}
_TYPES: Final = {
    "bool": (16, "boolean"), "bytea": (17, "bytea"), "char": (1042, "character"),
    "int8": (20, "bigint"), "int2": (21, "smallint"), "int4": (23, "integer"),
    "text": (25, "text"), "oid": (26, "oid"), "json": (114, "json"), "float4": (700, "real"),
    "float8": (701, "double precision"), "varchar": (1043, "character varying"),
    "date": (1082, "date"), "time": (1083, "time without time zone"),
    "timestamp": (1114, "timestamp without time zone"),
    "timestamptz": (1184, "timestamp with time zone"), "interval": (1186, "interval"),
    "bit": (1560, "bit"), "varbit": (1562, "bit varying"), "numeric": (1700, "numeric"),
    "uuid": (2950, "uuid"), "jsonb": (3802, "jsonb"), "int4[]": (1007, "integer[]"),
    "text[]": (1009, "text[]"), "numeric[]": (1231, "numeric[]"), "int1": (INT1, "tinyint"),
    "nvarchar2": (NVARCHAR2, "nvarchar2"), "smalldatetime": (SMALLDATETIME, "smalldatetime"),
    "blob": (BLOB, "blob"), "raw": (RAW, "raw"), "clob": (CLOB, "clob"),
}  # fmt: skip
_SPELLED: Final = re.compile(r"([a-z0-9]+(?:\[\])?)(?:\((\d+)(?:,(\d+))?\))?")


class TypeSpec(NamedTuple):
    """A type with its modifier, and its name as ``format_type_be`` prints it."""

    oid: int
    modifier: int
    name: str


def parse_type(text: str) -> TypeSpec:
    """Read a short type name: ``numeric(12,3)``."""
    match = _SPELLED.fullmatch(text)
    if match is None:
        raise ValueError(f"no such type: {text}")
    oid, name = _TYPES[match[1]]
    modifier = -1
    if match[2] is not None:
        first = int(match[2])
        if oid == NUMERIC:
            modifier = (first << 16 | int(match[3] or 0)) + 4
        elif oid in (1042, 1043, NVARCHAR2):
            modifier = first + 4
        else:
            modifier = first
    return TypeSpec(oid, modifier, name)


@dataclasses.dataclass(frozen=True, slots=True)
class Printer:
    """Prints values as one database does.

    Attributes:
        profile: version of the server.
        encoding: Python codec of the database.
        leading_zero: ``display_leading_zero`` is in behavior_compat_options.
        short_infinity: the switch of A-compatible databases: ``Inf``, ``Nan``.
        zone_minutes: TimeZone of the database, as a fixed offset.
        rounds_floats: as with extra_float_digits 0, which sql_decoding sets.
    """

    profile: Profile
    encoding: str = "utf-8"
    leading_zero: bool = False
    short_infinity: bool = False
    zone_minutes: int = 0
    rounds_floats: bool = False

    def print(self, oid: int, value: str | bytes | None) -> bytes | None:
        """Print one value; bytes are what the table holds, whatever they are."""
        if value is None or isinstance(value, bytes):
            return value
        if oid in (FLOAT4, FLOAT8):
            value = self._zero(self._float(oid, value))
        elif oid == NUMERIC:
            value = self._zero(self._special(value))
        elif oid in _ARRAYS and '"' not in value:
            element = _ARRAYS[oid]
            value = re.sub(
                r"[^{},\[\]:=]+(?![^\[]*\])", lambda m: self._element(element, m[0]), value
            )
        elif oid in (RAW, BLOB):
            value = value.removeprefix("\\x").upper()
        elif oid == TIMESTAMPTZ and self.zone_minutes:
            value = self._shift(value)
        return value.encode(self.encoding)

    def _element(self, oid: int, text: str) -> str:
        if text == "NULL":
            return text
        return self._zero(self._float(oid, text) if oid != NUMERIC else self._special(text))

    def _special(self, text: str) -> str:
        if self.short_infinity:
            return text.replace("Infinity", "Inf").replace("NaN", "Nan")
        return text

    def _float(self, oid: int, text: str) -> str:
        number = float(text)
        if number != number or number in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN
            return self._special(text)
        if self.rounds_floats:
            return f"{number:.{6 if oid == FLOAT4 else 15}g}"
        if self.profile.has_short_floats:
            return text
        if oid == FLOAT4:
            return f"{struct.unpack('f', struct.pack('f', number))[0]:.9g}"
        return f"{number:.18g}"

    def _zero(self, text: str) -> str:
        if self.leading_zero:
            return text
        if text.startswith("0."):
            return text[1:] if float(text) else text
        if text.startswith("-0."):
            return "-" + text[2:] if float(text) else text
        return text

    def _shift(self, text: str) -> str:
        """Print a moment that stands in UTC in the zone of the database."""
        match = re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(\.\d+)?\+00", text)
        if match is None:
            raise ValueError("a simulated database outside UTC holds plain moments only")
        moment = dt.datetime.fromisoformat(match[1]) + dt.timedelta(minutes=self.zone_minutes)
        hours, minutes = divmod(abs(self.zone_minutes), 60)
        sign = "-" if self.zone_minutes < 0 else "+"
        zone = f"{sign}{hours:02}" + (f":{minutes:02}" if minutes else "")
        return f"{moment:%Y-%m-%d %H:%M:%S}{match[2] or ''}{zone}"
