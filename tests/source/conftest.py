"""Servers, and a main process's side of the reader, for the tests of the source."""

import contextlib
import json
import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from kit.postgres import Database, Postgres
from kit.wire import RAW_HEADER, section_of, tally

from gaussdecode.errors import GaussDecodeError, from_record
from gaussdecode.ipc.control import Control, Word
from gaussdecode.ipc.process import Child, spawn_child
from gaussdecode.ipc.ring import Ring
from gaussdecode.model.relation import Relation
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.source_sections import DecodingConfig
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.settings import ReaderSettings

_RAW_RELATION: Final = struct.Struct("=IIIIHHI")
_PLAN_BYTES: Final = 8
_END: Final = 1
_SECONDS: Final = 60.0  # patience of a test, never a claim about speed


@dataclass
class RawBatch:
    """One raw batch, taken apart."""

    kind: int
    dispatch_seq: int
    relations: list[Relation]
    messages: list[bytes]
    keepalive_lsn: int
    keepalive_reply: bool
    filtered: tuple[int, ...]
    before_start: tuple[int, ...]


def parse_batch(entry: bytes) -> RawBatch:
    """Take a raw batch apart; its sizes and its sums must add up."""
    (
        _,
        kind,
        seq,
        relation_count,
        message_count,
        offset,
        size,
        keepalive,
        reply,
        _,
        _,
        _,
        _,
        *sums,
    ) = RAW_HEADER.unpack_from(entry)
    assert size == len(entry)
    relations, at = [], RAW_HEADER.size
    for _ in range(relation_count):
        record_size, _, _, flags, columns, _, length = _RAW_RELATION.unpack_from(entry, at)
        text = at + _RAW_RELATION.size + _PLAN_BYTES * columns
        relation = Relation.from_record(json.loads(entry[text : text + length]))
        assert relation.is_filtered == bool(flags)
        relations.append(relation)
        at += record_size
    assert at == offset
    section, end = section_of(entry)
    assert (len(section), end) == (message_count, size)
    messages = [message for _, message in section]
    framed, filtered, before_start = (tuple(sums[start : start + 6]) for start in (0, 6, 12))
    found = (tally(messages), filtered, before_start)
    assert framed == tuple(map(sum, zip(*found, strict=True)))
    return RawBatch(kind, seq, relations, messages, keepalive, bool(reply), filtered, before_start)


@dataclass
class Main:
    """What the daemon does with a reader: starts it, reads its rings, listens, tells it."""

    settings: dict[str, Any]
    decoder_count: int = 2
    ring_bytes: int = 1 << 20
    env_allow: tuple[str, ...] = ()
    batches: list[RawBatch] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    reports: list[dict[str, Any]] = field(default_factory=list)
    ends: int = 0

    def __post_init__(self) -> None:
        self.control = Control.create()
        self.rings = [Ring.create(self.ring_bytes, 128) for _ in range(self.decoder_count)]
        fds = [ring.producer_fds() for ring in self.rings]
        settings = {
            **self.settings,
            "ring_fds": fds,
            "control_fd": self.control.fd,
            "decoder_count": self.decoder_count,
        }
        self.child: Child = spawn_child("gaussdecode.source.reader", settings, self.env_allow)
        for ring in self.rings:
            ring.close_producer_side()

    def listen(self) -> None:
        """Take the reports that are here."""
        self.reports += self.child.reports()

    def facts(self) -> dict[str, Any]:
        """Wait for the report that the reader is connected."""
        return self.report("connected")

    def report(self, kind: str) -> dict[str, Any]:
        """Wait for a report of a kind."""
        self.wait(lambda: any(report["kind"] == kind for report in self.reports), kind)
        return next(report for report in self.reports if report["kind"] == kind)

    def error(self) -> GaussDecodeError:
        """Wait for the reader's error."""
        return from_record(self.report("error")["error"])

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Read rings and reports until something holds."""
        deadline = time.monotonic() + _SECONDS
        while not condition():
            self.take(0.01)
            self.listen()
            assert time.monotonic() < deadline, f"no {what}; reports: {self.reports}"
            if self.child.exit_status() is not None and self.child.report_fd < 0:
                self.take(0.01)
                assert condition(), f"ended without {what}; reports: {self.reports}"

    def wait_blind(self, condition: Callable[[], bool], what: str) -> None:
        """Wait without reading the rings."""
        deadline = time.monotonic() + _SECONDS
        while not condition():
            time.sleep(0.02)
            self.listen()
            assert time.monotonic() < deadline, f"no {what}; reports: {self.reports}"

    def take(self, seconds: float) -> None:
        """Take one entry from the ring whose turn it is, if it is there."""
        try:
            entry = self.rings[len(self.entries) % self.decoder_count].get_bytes(seconds)
        except EOFError:  # the reader is gone; its reports say why
            entry = None
            time.sleep(seconds)
        if entry is None:
            return
        self.entries.append(entry)
        if self.decoder_count == 1:
            return
        batch = parse_batch(entry)
        assert batch.dispatch_seq == len(self.batches)
        self.batches.append(batch)
        self.ends += batch.kind == _END

    def go(self) -> None:
        """Let the stream start."""
        self.facts()
        self.control.set(Word.GO, 1)

    def messages(self) -> list[bytes]:
        """All messages so far, in order."""
        return [message for batch in self.batches for message in batch.messages]

    def commits(self) -> list[int]:
        """End positions of the commits so far."""
        commits = [message for message in self.messages() if message[:1] == b"C"]
        return [int.from_bytes(commit[10:18], "big") for commit in commits]

    def wait_for_commits(self, count: int) -> None:
        """Wait for so many transactions in all."""
        self.wait(lambda: len(self.commits()) >= count, f"{count} commits")

    def stop(self) -> int:
        """Ask for the end, take everything, confirm it, and wait for the reader to leave."""
        self.control.set(Word.STOP_REQUESTED, 1)
        return self.finish()

    def finish_durable(self, durable_lsn: int) -> int:
        """Stop, with only so much landed."""
        self.control.set(Word.STOP_REQUESTED, 1)
        return self.finish(durable_lsn)

    def finish(self, durable_lsn: int | None = None) -> int:
        """Take everything up to the end entries, confirm, and wait for the exit status."""
        self.wait(lambda: self.ends == self.decoder_count, "end entries")
        reached = max([0, *self.commits()]) if durable_lsn is None else durable_lsn
        self.control.set(Word.DURABLE_LSN, reached)
        self.control.set(Word.FINISHED, 1)
        self.wait_blind(lambda: self.child.exit_status() is not None, "exit")
        self.listen()
        status = self.child.exit_status()
        assert status is not None
        return status

    def close(self) -> None:
        """Leave nothing behind."""
        self.child.kill()
        self.child.close_reports()
        for ring in self.rings:
            ring.close()
        self.control.close()


def settings_for(database: Database, **changes: Any) -> dict[str, Any]:  # Any: of any field
    """Settings of a reader for a database of the test server.

    Args:
        database: with the slot.
        changes: fields of `ReaderSettings`, or of the address, or options by name.
    """
    log = changes.pop("log", None)
    options = {name: changes.pop(name) for name in list(changes) if "-" in name}
    address = SourceAddress(
        changes.pop("conninfo", database.dsn + " sslmode=disable"),
        None,
        changes.pop("is_insecure_allowed", True),
    )
    settings = ReaderSettings(
        **{
            "kind": SourceKind.POSTGRESQL,
            "address": address,
            "file": None,
            "slot": database.slot,
            "publications": (database.publication,),
            "messages": True,
            "receiver_timeout": 60.0,
            "desc_directory": "/nowhere",
            "config_name": "orders.yaml",
            "ha_port": None,
            "plugin": "",
            "decoding": DecodingConfig.of(SourceKind.POSTGRESQL, options),
            "max_message_bytes": 1 << 30,
            "max_row_bytes": 1 << 30,
            "defers_large_rows": False,
            "log": None,
            **changes,
        }
    )
    return {**settings.to_record(), "log": log}


MakeMain = Callable[..., Main]


def _slotted(server: Postgres) -> Iterator[Database]:
    made = Database(server, f"t{os.getpid()}_{time.monotonic_ns() % 10**9}")
    made.create_slot()
    yield made
    made.drop()


@pytest.fixture
def database(postgres_15: Postgres) -> Iterator[Database]:
    """An empty database with a publication and a slot."""
    yield from _slotted(postgres_15)


@pytest.fixture
def database_of_each(postgres: Postgres) -> Iterator[Database]:
    """The same on each major."""
    yield from _slotted(postgres)


@pytest.fixture
def address(database: Database) -> SourceAddress:
    """How the source reaches it."""
    return SourceAddress(database.dsn + " sslmode=disable", None, True)


@pytest.fixture
def make_main() -> Iterator[MakeMain]:
    """Start readers; `make_main(database, settings changes..., decoder_count=2)`."""
    with contextlib.ExitStack() as stack:

        def make(
            database: Database,
            *,
            decoder_count: int = 2,
            ring_bytes: int = 1 << 20,
            env_allow: tuple[str, ...] = (),
            **changes: Any,  # Any: JSON
        ) -> Main:
            settings = settings_for(database, **changes)
            main = Main(settings, decoder_count, ring_bytes, env_allow)
            stack.callback(main.close)
            return main

        yield make


@pytest.fixture
def make_reader() -> Iterator[Callable[[dict[str, Any]], Main]]:
    """Start readers with settings as they are."""
    with contextlib.ExitStack() as stack:

        def make(settings: dict[str, Any]) -> Main:  # Any: JSON
            main = Main(settings)
            stack.callback(main.close)
            return main

        yield make


@pytest.fixture(autouse=True)
def _no_orphans() -> Iterator[None]:
    """No test leaves a reader behind."""
    yield
    mine = f"PPid:\t{os.getpid()}\n"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            if mine in (process / "status").read_text():
                arguments = (process / "cmdline").read_bytes().split(b"\0")
                assert b"gaussdecode.source.reader" not in arguments, process
