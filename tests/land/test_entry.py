"""Entries and checkpoints: exact bytes, and every way they can be wrong."""

import dataclasses
import datetime as dt
import hashlib
import json
from pathlib import Path

import pytest

from gaussdecode.errors import LandingError
from gaussdecode.land.disk import Disk
from gaussdecode.land.entry import parse_entry
from gaussdecode.land.entry_steps import reveal
from gaussdecode.land.files import Files
from gaussdecode.land.space import SpaceWait
from gaussdecode.model.entry import (
    FIRST_PREVIOUS,
    CheckpointHeader,
    CommitEntry,
    checkpoint_name,
    format_time,
    parse_checkpoint,
    parse_time,
)
from gaussdecode.model.landing import (
    EntryKind,
    LandingFile,
    Position,
    Replacement,
    SchemaChange,
    SourcePosition,
    Truncate,
)
from gaussdecode.model.seal import canonical_json, sealed

TIME = dt.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=dt.UTC)
FILE = LandingFile(
    table="public.a",
    path="data/public.a/gd_date=2026-01-31/00000000000000000001-a-b.parquet",
    rows=3,
    bytes=1000,
    first=Position(256, 0),
    last=Position(512, 2),
    schema_id="0123456789abcdef",
    ops={"I": 3},
    has_unchanged=False,
    has_key_change=True,
    checksum="sha256:" + "0" * 64,
)
ENTRY = CommitEntry(
    n=1,
    kind=EntryKind.DATA,
    previous="a" * 64,
    positions={"orders": SourcePosition(0, 1, 512, 9)},
    committed_time=TIME,
    mtime_ms=1769860800000,
    commit_time=TIME,
    files=(FILE,),
    hidden=(".gd-w-00000000000000000001-1.parquet",),
    truncates=(Truncate("public.b", Position(512, 3), cascade=True, restart_identity=False),),
    schema_changes=(SchemaChange("public.a", Position(256, 0), "0123456789abcdef", None),),
    replaced=(Replacement("compact/x", ("data/y",), 1, 2),),
    floor=3,
    anchor="b" * 64,
    extra={"note": ["ü", 1]},
).sealed()[0]
RAW = ENTRY.to_bytes()


def test_entry_is_read_back() -> None:
    """Every field survives the way through its bytes."""
    assert CommitEntry.from_bytes(RAW) == ENTRY
    assert json.loads(RAW)["hash"] == ENTRY.hash


def test_entry_is_one_line() -> None:
    """A checkpoint can hold it as a line."""
    assert b"\n" not in RAW


@pytest.mark.parametrize("size", range(0, len(RAW), 7))
def test_every_prefix_is_refused(size: int) -> None:
    """Torn anywhere, an entry is no entry."""
    with pytest.raises(LandingError, match="torn"):
        parse_entry(RAW[:size], "commits/1.json")


@pytest.mark.parametrize("index", range(0, len(RAW), 11))
def test_every_flipped_bit_is_refused(index: int) -> None:
    """One bit anywhere, and it is refused with its file's name."""
    altered = bytearray(RAW)
    altered[index] ^= 1
    with pytest.raises(LandingError, match=r"commits/1\.json"):
        parse_entry(bytes(altered), "commits/1.json")


def resealed(**changes: object) -> bytes:
    """An entry with other fields and the right hash."""
    record = json.loads(RAW)
    del record["hash"]
    body = canonical_json({**record, **changes})
    return body[:-1] + b',"hash":"' + hashlib.sha256(body).hexdigest().encode() + b'"}'


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "version 2"),
        ({"n": -1}, "whole number"),
        ({"n": True}, "whole number"),
        ({"kind": "other"}, "other"),
        ({"previous": "x"}, "expected form"),
        ({"surprise": 1}, "unknown fields"),
        ({"hidden": []}, "1 files, 0 hidden"),
        ({"hidden": ["../x"]}, "expected form"),
        ({"published": "2026-01-31T00:00:00"}, "without zone"),
        ({"files": [{"path": "x"}]}, "missing or wrong"),
    ],
)
def test_wrong_field_is_refused(changes: dict[str, object], reason: str) -> None:
    """The right hash does not save wrong content."""
    with pytest.raises(ValueError, match=reason):
        CommitEntry.from_bytes(resealed(**changes))


@pytest.mark.parametrize("path", ["/etc/passwd", "data/../x.parquet", "data/t/../../x.parquet"])
def test_path_outside_is_refused(path: str) -> None:
    """No entry can name a file outside of the landing."""
    entry = dataclasses.replace(ENTRY, files=(dataclasses.replace(FILE, path=path),))
    with pytest.raises(ValueError, match="expected form"):
        CommitEntry.from_bytes(entry.to_bytes())


def test_time_keeps_microseconds() -> None:
    """Times are UTC with six digits, also before the year 1000."""
    assert format_time(TIME) == "2026-01-31T12:00:00.000005Z"
    early = dt.datetime(7, 1, 1, tzinfo=dt.UTC)
    assert parse_time(format_time(early)) == early


def test_checkpoint_is_read_back() -> None:
    """Header and exact bytes of the entries; a flipped bit or a lost line is refused."""
    lines = RAW + b"\n" + RAW + b"\n"
    header = CheckpointHeader(
        first=0,
        last=1,
        previous=FIRST_PREVIOUS,
        hash=ENTRY.hash,
        positions=ENTRY.positions,
        schemas={"public.a": "0123456789abcdef"},
        floor=-1,
        anchor=FIRST_PREVIOUS,
        compacted=0,
        mtime_ms=5,
        committed_time=TIME,
        checksum=hashlib.sha256(lines).hexdigest(),
        elapsed_ms=7,
    )
    raw = header.to_line() + b"\n" + lines
    found, entries = parse_checkpoint(raw)
    assert found == header
    assert list(entries) == [RAW, RAW]
    with pytest.raises(ValueError, match="altered"):
        parse_checkpoint(raw[:-1])
    with pytest.raises(ValueError, match="not the header"):
        parse_checkpoint(sealed(b'{"version":2}') + b"\n")
    assert checkpoint_name(0, 999) == f"{0:020d}-{999:020d}.jsonl"


@pytest.mark.parametrize("is_link", [True, False])
def test_what_is_no_file_keeps_no_rows_from_their_name(tmp_path: Path, is_link: bool) -> None:
    """Rows stay under their hidden name where something else has the name that they should get."""
    taken = tmp_path / FILE.path
    taken.parent.mkdir(parents=True)
    hidden = taken.with_name(ENTRY.hidden[0])
    hidden.write_bytes(b"rows")
    if is_link:
        taken.symlink_to("nothing")
    else:
        taken.mkdir()
    with pytest.raises(FileExistsError):
        reveal(Disk(Files(tmp_path), SpaceWait(), "w"), ENTRY)
    assert hidden.read_bytes() == b"rows"
