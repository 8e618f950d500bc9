"""Tests for `gaussdecode.protocol.gaussdb.printed`."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gaussdecode.errors import WireError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.gaussdb.printed import Part, Statement, statements, text_statement

VECTORS: dict[str, dict[str, Any]] = {  # Any: JSON
    vector["id"]: vector
    for vector in json.loads(
        (Path(__file__).parents[2] / "vectors" / "opengauss.json").read_text()
    )["vectors"]
}
BODIES = [
    name
    for name, vector in VECTORS.items()
    if vector["layer"] == "copydata_body" and "header" in vector["decoded"]
]
HEADER_BYTES = 25
FAR = Lsn(0x10)


def printed(payload: bytes, style: str = "b", is_batched: bool = False) -> list[Statement]:
    """Split one payload."""
    return list(statements(payload, style, is_batched=is_batched, header_lsn=FAR))


def record(name: str) -> bytes:
    """One record of the vectors, with its separator."""
    return bytes.fromhex(VECTORS[name]["hex"]) + b"F"


def test_the_documents_sample() -> None:
    """A row is spelled as the product's page shows it."""
    (statement,) = printed(record("I01"))
    assert statement.line == (
        b"current_lsn: 0/CFE5D40 INSERT INTO public.test1 "
        b'new_tuple: {a[typid = 23]: "1", b[typid = 23]: "2"}'
    )
    assert (statement.part, statement.lsn) == (Part.CHANGE, Lsn(0xCFE5D40))


def test_new_values_come_before_old_ones() -> None:
    """As on the wire."""
    (statement,) = printed(record("U01"))
    assert statement.line == (
        b'current_lsn: 0/CFE7000 UPDATE public.t1 new_tuple: {a[typid = 23]: "1", '
        b'b[typid = 25]: "cde"} old_value: {a[typid = 23]: "1"}'
    )


def test_begin_and_commit() -> None:
    """The unbatched transaction of the vectors, part by part."""
    payloads = [bytes.fromhex(VECTORS[name]["hex"])[HEADER_BYTES:] for name in ("N01", "N03")]
    (begin,), (commit,) = map(printed, payloads)
    assert begin == Statement(
        Part.BEGIN,
        b"current_lsn: 0/CFE5D40 BEGIN CSN: 2357 first_lsn: 0/CFE5D40 xid: 78108",
        Lsn(0xCFE5D40),
        2357,
    )
    assert commit == Statement(
        Part.COMMIT, b"current_lsn: 0/CFE5E68 COMMIT xid: 78108", Lsn(0xCFE5E68)
    )


def part(letter: bytes, size: int, value: bytes) -> bytes:
    """An optional part with a size of its own."""
    return letter + len(value).to_bytes(size) + value


def framed(body: bytes, lsn: int = 1, end: bytes = b"F") -> bytes:
    """A record around a letter and its body."""
    return (len(body) + 8).to_bytes(4) + lsn.to_bytes(8) + body + end


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (b"", b""),
        (b"X" + (7).to_bytes(8), b" xid: 7"),
        (part(b"T", 4, b"2024-03-14 20:31:12+08"), b" commit_time: 2024-03-14 20:31:12+08"),
        (part(b"N", 4, b"alice"), b" user: alice"),
        (b"O" + (3).to_bytes(4), b" origin_id: 3"),
        (part(b"N", 4, b"bob") + b"X" + (9).to_bytes(8), b" user: bob xid: 9"),
        (b"Z whatever comes later", b""),
    ],
    ids=["none", "xid", "time", "user", "origin", "any order", "unknown"],
)
def test_optional_parts_of_begin(options: bytes, expected: bytes) -> None:
    """Each is spelled where it stands; after an unknown one the rest of the record is skipped."""
    body = b"B" + (5).to_bytes(8) + (0x1A).to_bytes(8) + options
    (statement,) = printed(framed(body))
    assert statement.line == b"current_lsn: 0/1 BEGIN CSN: 5 first_lsn: 0/1A" + expected
    assert statement.csn == 5


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (b"", b"COMMIT "),
        (b"X" + (7).to_bytes(8), b"COMMIT xid: 7"),
        (b"X" + (7).to_bytes(8) + part(b"T", 4, b"now"), b"COMMIT xid: 7 commit_time: now"),
        (part(b"T", 4, b"now"), b"COMMIT  commit_time: now"),
    ],
)
def test_commit_has_the_products_blanks(options: bytes, expected: bytes) -> None:
    """Byte for byte, also where two blanks come together."""
    (statement,) = printed(framed(b"C" + options))
    assert statement == Statement(Part.COMMIT, b"current_lsn: 0/1 " + expected, Lsn(1))


@pytest.mark.parametrize("end", [b"F", b"P\0\0\0\0"], ids=["size flush", "timer flush"])
def test_batches_end_in_two_ways(end: bytes) -> None:
    """After F, or after P and a size of zero."""
    payload = framed(b"C", 1, b"P") + framed(b"C", 2, b"P") + framed(b"C", 3, b"") + end
    assert [statement.lsn for statement in printed(payload)] == [1, 2, 3]


@pytest.mark.parametrize("name", ["H01", "H02"])
def test_heartbeats_in_both_framings(name: str) -> None:
    """Bare as documented, and framed as a record."""
    (statement,) = printed(bytes.fromhex(VECTORS[name]["hex"]))
    assert statement.part is Part.HEARTBEAT
    assert statement.line == b"HeartBeat: 0/CFE6350 flushed_lsn: 0/CFE6400 time: 1710419472098"


@pytest.mark.parametrize("name", BODIES)
def test_every_recorded_message_is_printed(name: str) -> None:
    """Whatever its style: as many lines as it holds statements."""
    vector = VECTORS[name]
    payload = bytes.fromhex(vector["hex"])[HEADER_BYTES:]
    style = vector.get("decode_style") or "s"
    found = printed(payload, style, bool(vector.get("sending_batch")))
    decoded = vector["decoded"]
    expected = decoded.get("records", decoded.get("statements", [decoded.get("text")]))
    assert len(found) == len(expected)
    for statement, one in zip(found, expected, strict=True):
        text = one if isinstance(one, str) else one.get("text")
        if text is not None:
            assert statement.line == text.encode()


@pytest.mark.parametrize(
    ("text", "kind", "csn"),
    [
        (b"BEGIN CSN: 2359 first_lsn: 0/CFE64D0 xid: 78110", Part.BEGIN, 2359),
        (b"BEGIN 78108", Part.BEGIN, None),
        (b"BEGIN", Part.BEGIN, None),
        (b"commit", Part.COMMIT, None),
        (b"commit xid: 78110 (at 2024-03-14 20:31:12.098179+08)", Part.COMMIT, None),
        (b"COMMIT 78108 (at 2024-03-14 20:31:12+08) CSN 2357", Part.COMMIT, None),
        (b"table public commit INSERT: a[text]:'\ncommit'", Part.CHANGE, None),
        (b'{"table_name":"public.t"}', Part.CHANGE, None),
        (b"insert into public.t values (1);", Part.CHANGE, None),
        (b"HeartBeat: 1", Part.HEARTBEAT, None),
    ],
)
def test_text_says_what_it_is(text: bytes, kind: Part, csn: int | None) -> None:
    """By how it begins, and never by what stands in a value."""
    assert text_statement(text, FAR) == Statement(kind, text, FAR, csn)


def test_only_serial_text_takes_the_headers_position() -> None:
    """In parallel decoding the header belongs to something else."""
    for style, lsn in (("t", None), ("j", None), ("s", FAR), ("q", FAR)):
        (statement,) = printed(b"commit", style)
        assert statement.lsn == lsn


@pytest.mark.parametrize("name", ["I01", "U01"])
def test_every_prefix_is_refused(name: str) -> None:
    """Cut anywhere, a record raises instead of printing what is not there."""
    payload = record(name)
    for size in range(len(payload)):
        with pytest.raises(WireError):
            printed(payload[:size])


@given(st.binary(max_size=80), st.sampled_from("btj"), st.booleans())
def test_any_bytes_print_or_raise(payload: bytes, style: str, is_batched: bool) -> None:
    """Nothing else comes out of damaged bytes than a WireError."""
    try:
        found = printed(payload, style, is_batched)
    except WireError:
        return
    assert all(isinstance(statement.line, bytes) for statement in found)
