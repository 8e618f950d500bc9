"""What real openGauss servers sent, and what they held at the end: ``vectors/opengauss-*``.

Each folder's README has the format. The streams are played as they are, over a socket, or wrapped as
capture files, which is what the daemon's own recording would have made of them. A stream is named
by the server's version and its file: ``6.0.2/b-batched``.
"""

import functools
import json
import lzma
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from gaussdecode.model.lsn import Lsn
from gaussdecode.source.capture import Capture, CaptureHeader, CaptureWriter, Style

VERSIONS: Final = ("5.0.0", "6.0.2")
_VECTORS: Final = Path(__file__).parent.parent / "vectors"


def _named(suffix: str) -> list[str]:
    return sorted(
        f"{version}/{path.name.removesuffix(suffix)}"
        for version in VERSIONS
        for path in (_VECTORS / f"opengauss-{version}").glob(f"*{suffix}")
    )


_ALL: Final = _named(".msgs.xz")
UPSERTS: Final = [name for name in _ALL if "/ups-" in name]
STREAMS: Final = [name for name in _ALL if "/ups-" not in name]
CAPTURES: Final = _named(".capture.xz")
_HEAD: Final = struct.Struct(">cI")
_OPTION: Final = re.compile(r"\"([^\"]+)\" '([^']*)'")
_COPY_DATA: Final = b"d"
_NOTICE: Final = b"N"
_TABLE: Final = b"T"
_TEXT_OID: Final = 25
_UPSERT_COLUMNS: Final = (("id", "integer", 23), ("v", "text", _TEXT_OID), ("n", "integer", 23))
_UPSERT_OIDS: Final = {"ups_heap": 90001, "ups_ustore": 90002}  # ours: no stream has OIDs of tables

Json = dict[str, Any]  # Any: JSON


class Row(NamedTuple):
    """One change as the server's own serial view has it; values as it prints them."""

    xid: int
    table: tuple[str, str]
    op: str
    new: dict[str, str | None]
    old: dict[str, str | None] | None
    lsn: int


def unpacked(name: str) -> bytes:
    """A file of a version's folder."""
    return lzma.decompress((_VECTORS / f"opengauss-{name}.xz").read_bytes())


@functools.cache
def meta(version: str) -> Json:
    """What was asked for, and the settings of the server."""
    text = (_VECTORS / f"opengauss-{version}" / "meta.json").read_text(encoding="utf-8")
    found: Json = json.loads(text)
    return found


def version_of(name: str) -> str:
    """Of the server that sent a stream."""
    return name.partition("/")[0]


def options(name: str) -> dict[str, str]:
    """Those of the command that asked for a stream."""
    version, _, stem = name.partition("/")
    return dict(_OPTION.findall(meta(version)["captures"][stem]["command"]))


def messages(stream: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Split a stream into messages: letter and body."""
    at = 0
    while at < len(stream):
        letter, size = _HEAD.unpack_from(stream, at)
        yield letter, stream[at + _HEAD.size : at + 1 + size]
        at += 1 + size


def style(name: str) -> Style:
    """The form of a stream, by the command that asked for it."""
    if name in UPSERTS:
        letter = name.partition("/ups-")[2][0]
        return Style(letter, is_batched=letter != "s", hides_truncate=True)
    given = options(name)
    is_parallel = int(given.get("parallel-decode-num", "1")) > 1
    return Style(
        given["decode-style"] if is_parallel else "s",
        is_batched=is_parallel and given["sending-batch"] == "1",
        hides_truncate=is_parallel or version_of(name) == "5.0.0",
    )


def is_asked_for(name: str, table: tuple[str, str]) -> bool:
    """Whether a stream's white list, if it had one, takes a table in."""
    if name in CAPTURES:
        return True
    return options(name).get("white-table-list", "*.*") in {"*.*", f"{table[0]}.*"}


def described() -> list[bytes]:
    """The frames of all captures that say what the catalogue said, each once.

    Both servers had the same tables; those of the upserts are added.
    """
    frames = dict.fromkeys(frame for name in CAPTURES for frame in _described(name))
    return [*frames, *map(_of_upserts, ("ups_heap", "ups_ustore"))]


def _of_upserts(name: str) -> bytes:
    columns = [
        {
            "name": column, "number": number, "type_text": text, "type_oid": oid,
            "type_modifier": -1, "is_toastable": oid == _TEXT_OID, "is_not_null": number == 1,
            "is_generated": False, "key_position": 0 if number == 1 else None,
        }
        for number, (column, text, oid) in enumerate(_UPSERT_COLUMNS, 1)
    ]  # fmt: skip
    table = {
        "oid": _UPSERT_OIDS[name], "schema": "public", "name": name, "kind": "r", "identity": "d",
        "columns": columns, "identity_index": [],
    }  # fmt: skip
    return _TABLE + json.dumps({"schema": "public", "name": name, "table": table}).encode()


@functools.cache
def _described(name: str) -> tuple[bytes, ...]:
    return tuple(frame for frame in frames(name) if frame[:1] == _TABLE)


def frames(name: str) -> Iterator[bytes]:
    """The frames of a capture."""
    data = unpacked(f"{name}.capture")
    at = 12 + int.from_bytes(data[8:12], "little")
    while size := int.from_bytes(data[at : at + 4], "little"):
        yield data[at + 4 : at + 4 + size]
        at += 4 + size


def write_capture(name: str, path: Path) -> Path:
    """Write a stream, or a capture, as a capture file."""
    whole = path / f"{name.replace('/', '-')}.capture"
    if name in CAPTURES:
        whole.write_bytes(unpacked(f"{name}.capture"))
        return whole
    writer = CaptureWriter(whole, _header(name, path))
    for frame in described():
        writer.add(frame)
    for letter, body in messages(unpacked(f"{name}.msgs")):
        if letter == _COPY_DATA:
            writer.add(body)
        elif letter == _NOTICE:
            writer.add(_NOTICE + body)
    writer.finish()
    return whole


def _header(name: str, path: Path) -> CaptureHeader:
    """The header of a capture of the same slot, with the style of this stream."""
    like = path / "like.capture"
    like.write_bytes(unpacked(f"{CAPTURES[0]}.capture"))
    capture = Capture(like)
    number = int("{}{:02}{:02}".format(*map(int, version_of(name).split("."))))
    record = {**json.loads(capture.header.to_bytes()[12:]), "style": {}, "server_version": number}
    if version_of(name) != version_of(CAPTURES[0]):
        record["start_lsn"] = "0/1000000"  # before all of its changes
    capture.close()
    form = style(name)
    record["style"] = {
        "letter": form.letter,
        "is_batched": form.is_batched,
        "hides_truncate": form.hides_truncate,
    }
    return CaptureHeader.from_record(record)


@functools.cache
def final_rows(name: str) -> dict[tuple[str, str], list[dict[str, str | None]]]:
    """All rows of all tables at the end, as the server of a stream prints them."""
    stem = "ups-final" if name in UPSERTS else "final"
    tables = json.loads(unpacked(f"{version_of(name)}/{stem}.json"))
    return {
        _table(name): [
            {
                column: _plain(text, oid)
                for (column, oid), text in zip(held["columns"], row, strict=True)
            }
            for row in held["rows"]
        ]
        for name, held in tables.items()
    }


@functools.cache
def peeked(version: str) -> list[Row]:
    """All changes as ``pg_logical_slot_peek_changes`` shows them, in order."""
    found = []
    for lsn, xid, text in json.loads(unpacked(f"{version}/peek.json")):
        if not text.startswith("{"):
            continue
        row = json.loads(text)
        old = _values(row, "old_keys")
        found.append(
            Row(
                int(xid),
                _quoted(row["table_name"]),
                row["op_type"][0],
                _values(row, "columns"),
                old or None,
                int(Lsn.parse(lsn)),
            )
        )
    return found


_NUMBER: Final = re.compile(r"(?<![\d.])\.(?=\d)")  # the server leaves the zero before it out
_IDENTIFIER: Final = re.compile(r'"(?:[^"]|"")*"|[^".]+')
_RAW_OID: Final = (86, 88)
_NUMERIC_OIDS: Final = (1700, 1231)
_HEADLESS: Final = ("raw", "blob")
_NUMERIC: Final = ("numeric", "numeric[]")


def _table(name: str) -> tuple[str, str]:
    schema, _, table = name.partition(".")
    return schema, table


def _quoted(name: str) -> tuple[str, str]:
    """Two identifiers, each quoted where it must be."""
    schema, table = _IDENTIFIER.findall(name)
    return _bare(schema), _bare(table)


def _bare(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _plain(text: str | None, oid: int) -> str | None:
    """A value of a query as it lands."""
    if text is None:
        return None
    if oid in _RAW_OID:
        return "\\x" + text.lower()
    return _NUMBER.sub("0.", text) if oid in _NUMERIC_OIDS else text


def _values(row: Json, prefix: str) -> dict[str, str | None]:
    names = map(_bare, row[f"{prefix}_name"])
    values = zip(row[f"{prefix}_val"], row[f"{prefix}_type"], strict=True)
    return {name: _literal(text, of) for name, (text, of) in zip(names, values, strict=True)}


def _literal(text: str, of: str) -> str | None:
    """A value as its type prints it, out of a literal."""
    if text == "null":
        return None
    if text.startswith(("'", "B'")):
        text = text.removeprefix("B")[1:-1].replace("''", "'")
    if of in _HEADLESS:
        return "\\x" + text.lower()
    if of in _NUMERIC:
        return _NUMBER.sub("0.", text)
    return {"true": "t", "false": "f"}.get(text, text) if of == "boolean" else text
