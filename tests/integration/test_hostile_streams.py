"""Messages of streamed and prepared transactions in an order that no server sends: refused, by the whole daemon.

Each is a recording that is replayed through reader, decoder, collector and landing.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from kit import landing, wire

from gaussdecode.cli import main
from gaussdecode.errors import EX_OK, EX_PROTOCOL
from gaussdecode.model.landing import SourceIdentity
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.capture import CaptureHeader, CaptureWriter

pytestmark = pytest.mark.integration

_HEADER = CaptureHeader(
    identity=SourceIdentity("postgresql", "77", "shop", "orders", "pgoutput"),
    server_version=160015,
    timeline=1,
    encoding="UTF8",
    start_lsn=Lsn(0x100),
    options={"proto_version": "3", "streaming": "on", "two_phase": "on"},
    created_time=1.5,
)
_START, _GOES_ON, _STOP = wire.stream_start(), wire.stream_start(is_first=False), b"E"
_TABLE = wire.of_block(wire.relation_message([(1, "id", 23, -1)]))
_ROW = wire.of_block(wire.insert(["1"]))
_BLOCK = (_START, _TABLE, _ROW, _STOP)
_OTHER = wire.stream_start(8)
_COMMIT, _ABORT = wire.stream_commit(), wire.stream_abort()
_PREPARED = (*_BLOCK, wire.prepared(b"p"))
_ENDED = wire.prepared(b"K", lsn=0x3000, end_lsn=0x3030)

HOSTILE: dict[str, Sequence[bytes]] = {
    "stop without start": (_STOP,),
    "stop twice": (*_BLOCK, _STOP),
    "nested start": (_START, _START),
    "nested start of another": (_START, _OTHER),
    "start in a whole one": (wire.begin(), _START),
    "begins again": (*_BLOCK, *_BLOCK),
    "goes on that never began": (_GOES_ON, _STOP),
    "number 0": (wire.stream_start(0),),
    "commit of nobody": (_COMMIT,),
    "commit of another": (*_BLOCK, wire.stream_commit(8)),
    "commit twice": (*_BLOCK, _COMMIT, wire.stream_commit(commit_lsn=0x3000, end_lsn=0x3030)),
    "commit in a block": (_START, _COMMIT),
    "whole commit in a block": (_START, wire.commit()),
    "begin in a block": (_START, wire.begin()),
    "abort in a block": (_START, _ABORT),
    "block after its abort": (*_BLOCK, _ABORT, _GOES_ON, _STOP),
    "row outside of a block": (*_BLOCK, _ROW),
    "prepare in a block": (_START, wire.prepared(b"p")),
    "whole prepare in a block": (_START, wire.prepared(b"P")),
    "begin prepare in a block": (_START, wire.prepared(b"b")),
    "prepare of nobody": (wire.prepared(b"p"),),
    "commit of what is prepared as if streamed": (*_PREPARED, wire.stream_commit(
        commit_lsn=0x3000, end_lsn=0x3030)),
    "commit prepared of nobody": (wire.prepared(b"K"),),
    "commit prepared of another name": (*_PREPARED, wire.prepared(b"K", gid=b"h", lsn=0x3000, end_lsn=0x3030)),
    "commit prepared twice": (
        *_PREPARED, _ENDED,
        wire.prepared(b"K", lsn=0x4000, end_lsn=0x4030),
    ),
    "commit prepared in a block": (_START, wire.prepared(b"K")),
    "rollback prepared in a block": (_START, wire.prepared(b"r")),
    "stop in a prepared one": (wire.prepared(b"b"), _STOP),
    "prepared again under another name": (*_PREPARED, *_BLOCK, wire.prepared(b"p", gid=b"h")),
    "start cut short": (_START[:4],),
    "commit cut short": (*_BLOCK, _COMMIT[:-1]),
}  # fmt: skip


def replay(messages: Sequence[bytes], directory: Path) -> tuple[int, landing.Landing]:
    """Land messages as a recording; gives the exit status and what landed."""
    file, root = directory / "recording", directory / "landing"
    with CaptureWriter(file, _HEADER) as writer:
        for at, message in zip(itertools.count(0x110), messages, strict=False):
            writer.add(wire.xlog_data(at, message))
        writer.finish()
    status = main(["replay", str(file), "--root", str(root)])
    return status, landing.read(root)


@pytest.mark.parametrize("messages", HOSTILE.values(), ids=HOSTILE.keys())
def test_refused(messages: Sequence[bytes], tmp_path: Path) -> None:
    """Status 76, so that nothing starts it again; and no row landed."""
    status, landed = replay(messages, tmp_path)
    assert status == EX_PROTOCOL
    assert landed.changes == []


@pytest.mark.parametrize("messages", [(*_BLOCK, _COMMIT), (*_PREPARED, _ENDED)])
def test_taken(messages: Sequence[bytes], tmp_path: Path) -> None:
    """The same messages in their order land."""
    status, landed = replay(messages, tmp_path)
    assert status == EX_OK
    assert [change.new for change in landed.changes] == [{"id": 1}]
