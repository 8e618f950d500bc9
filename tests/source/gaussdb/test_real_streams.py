"""The receive loop on what real openGauss servers sent, over a socket, as it was sent.

With every message of it: data, keepalives, notices, and the ReadyForQuery after each of those.
"""

import socket
import threading
import time
from contextlib import closing
from typing import Any

import pytest
from kit import realstream, wire

from gaussdecode.ipc.control import Control, Word
from gaussdecode.ipc.ring import Ring
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._receive import End
from gaussdecode.source._status import StatusClock
from gaussdecode.source.gaussdb._receive import GaussReceiver
from gaussdecode.source.gaussdb.capture import RecordedCatalog
from gaussdecode.source.gaussdb.relations import GaussRelations
from gaussdecode.source.gaussdb.source import GaussPath
from gaussdecode.source.gaussdb.translate._translator import Translator
from gaussdecode.source.relations import WhiteList

START_LSN = 0x4263AC0  # where the slot stood
LIMIT = 64 << 20
HEADER_BYTES = 25


def catalog() -> RecordedCatalog:
    """What the server's catalogue said."""
    recorded = RecordedCatalog()
    for frame in realstream.described():
        recorded.take(frame[1:])
    return recorded


def translator(name: str) -> Translator:
    """Of the stream's style."""
    style = realstream.style(name)
    return Translator(style.letter.encode(), style.is_batched, "UTF8")


def directly(name: str) -> list[bytes]:
    """The canonical messages of all data, without a loop around them."""
    made, relations = translator(name), GaussRelations(WhiteList(), catalog())
    return [
        message
        for letter, body in realstream.messages(realstream.unpacked(f"{name}.msgs"))
        if letter == b"d" and body[:1] == b"w"
        for message in made.feed_bytes(
            body[HEADER_BYTES:], int.from_bytes(body[1:9], "big"), relations.define
        )
    ]


def taken(ring: Ring, found: list[bytes]) -> None:
    """Take the messages out of every batch, up to the entry that is the end."""
    while True:
        entry = ring.get_bytes(60)
        assert entry is not None
        header = wire.RAW_HEADER.unpack_from(entry)
        found += [message for _, message in wire.section_of(entry)[0]]
        if header[1] == 1:
            return


def heard(event: str, **fields: Any) -> None:
    """Nothing is logged here."""


@pytest.mark.parametrize("name", [*realstream.STREAMS, *realstream.UPSERTS])
def test_every_message_is_taken(name: str) -> None:
    """All data arrives, each notice is seen, and the statuses confirm nothing."""
    stream = realstream.unpacked(f"{name}.msgs")
    letters = [letter for letter, _ in realstream.messages(stream)]
    server, client = socket.socketpair()
    client.setblocking(False)
    with closing(Control.create()) as control, closing(Ring.create(4 << 20, 128)) as ring:
        clock = StatusClock(START_LSN, time.monotonic_ns() // 1000, 10_000_000, 60_000_000)
        receiver = GaussReceiver(control, Dispatcher([ring]), clock, translator(name), LIMIT)
        receiver.attach_socket(client, b"")
        path = GaussPath(receiver, GaussRelations(WhiteList(), catalog()), heard)
        found: list[bytes] = []

        def send() -> None:
            server.sendall(stream)
            server.shutdown(socket.SHUT_WR)

        threads = [
            threading.Thread(target=send),
            threading.Thread(target=taken, args=(ring, found)),
        ]
        for thread in threads:
            thread.start()
        while path.answer(end := receiver.run()):
            pass
        control.set(Word.FINISHED, 1)
        assert (end, receiver.finish()) == (End.LOST, End.DONE)
        for thread in threads:
            thread.join()
        assert control.get(Word.NOTICES) == letters.count(b"N")
    server.close()
    client.close()
    lost = [message for message in found if message[:1] == b"n"]
    assert len(lost) == letters.count(b"N")
    assert [message for message in found if message[:1] != b"n"] == directly(name)
