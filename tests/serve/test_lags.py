"""How far virtual slots are behind, from beside their server and in the server's own port."""

import dataclasses
import datetime as dt
import json
import math
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from kit.daemon import wait_until
from kit.served import Replication, Served, unpack_landing

from gaussdecode.daemon.serveprocess import monitor
from gaussdecode.errors import LandingError
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.serve.kept import KeptSlot, is_running, read_slots
from gaussdecode.serve.lags import Lag, Lags, slot_record
from gaussdecode.serve.stream import Sent
from gaussdecode.serve.users import write_user
from gaussdecode.settings.sections import MonitoringConfig
from gaussdecode.settings.types import Address


def entry(n: int, lsn: int, minutes: float | None, epoch: int = 1) -> CommitEntry:
    """An entry whose newest transaction is some minutes old; None for no transaction."""
    position = SourcePosition(epoch, 1, lsn)
    now = dt.datetime.now(dt.UTC)
    time = None if minutes is None else now - dt.timedelta(minutes=minutes)
    return CommitEntry(
        n=n, kind=EntryKind.DATA, previous="", positions={"orders": position}, committed_time=now,
        mtime_ms=0, commit_time=time,
    )  # fmt: skip


class Log:
    """Entries in memory."""

    def __init__(self, *entries: CommitEntry) -> None:
        self.held = {of.n: of for of in entries}
        self.read: list[int] = []

    def span(self) -> tuple[int, int]:
        """As `Lags` wants it."""
        return min(self.held, default=0), max(self.held, default=-1)

    def entries(self, first: int, last: int) -> Iterator[CommitEntry]:
        """Likewise."""
        for n in range(first, last + 1):
            if n not in self.held:
                raise LandingError(f"entry {n} is missing")
            self.read.append(n)
            yield self.held[n]

    def lags(self) -> Lags:
        """Lags over it."""
        return Lags(self.span, self.entries)


def test_behind_in_bytes_and_time() -> None:
    """From the oldest entry with a transaction that is not confirmed, which is read once."""
    log = Log(entry(0, 100, 90), entry(1, 200, None), entry(2, 300, 60), entry(3, 400, 30))
    lags = log.lags()
    for n, lsn, minutes in ((0, 50, 90), (1, 100, 60), (2, 250, 60), (2, 300, 30)):
        lag = lags.look([KeptSlot("s", n, 1, lsn)])["s"]
        assert lag.bytes == 400 - lsn
        assert lag.seconds == pytest.approx(minutes * 60, abs=30)
        assert not lag.is_lost
    log.read.clear()
    lags.look([KeptSlot("s", 2, 1, 300)])
    assert log.read == []
    assert lags.look([KeptSlot("s", 4, 1, 400)]) == {"s": Lag(0, 0)}
    log.held[4] = entry(4, 500, 5)
    later = lags.look([KeptSlot("s", 4, 1, 400)])["s"]
    assert (later.bytes, round(later.seconds / 60)) == (100, 5)


def test_unknown_is_not_zero() -> None:
    """In an empty log, in another epoch, of a damaged file, of a lost slot, and where the log cannot be read."""
    unknown = Lag()
    assert math.isnan(unknown.bytes)
    assert str(Log().lags().look([KeptSlot("s", 0, 1, 0)])["s"]) == str(unknown)
    log = Log(entry(5, 100, 9), entry(6, 200, 9, epoch=2))
    slots = [
        KeptSlot("epoch", 6, 1, 100),
        KeptSlot("earliest", 5, 2, 0),
        KeptSlot("damaged", None),
        KeptSlot("lost", 4, 2, 50),
    ]
    found = log.lags().look(slots)
    assert math.isnan(found["epoch"].bytes)
    assert math.isnan(found["earliest"].bytes)
    assert found["epoch"].seconds == pytest.approx(540, abs=30)
    assert str(found["damaged"]) == str(unknown)
    assert found["lost"].is_lost
    assert math.isnan(found["lost"].seconds)
    del log.held[5]
    log.held[4] = entry(4, 90, 9)
    assert math.isnan(log.lags().look([KeptSlot("s", 4, 2, 60)])["s"].seconds)
    shown = slot_record(slots[2], found["damaged"])
    assert shown["name"] == "damaged"
    assert {value for name, value in shown.items() if name != "name"} == {None}


def test_csns_count_no_bytes() -> None:
    """Also where entries say no mark: a slot in their order is behind by transactions alone."""
    made = [entry(n, 0, n) for n in range(1, 4)]
    at = {of.n: SourcePosition(1, 1, 0x500000000 + of.n, 5000 + of.n) for of in made}
    log = Log(*(dataclasses.replace(of, positions={"orders": at[of.n]}) for of in made))
    lags = Lags(log.span, log.entries, is_by_csn=True)
    slots = [KeptSlot("all", 4, 1, 5003), KeptSlot("some", 2, 1, 5001)]
    found = lags.look(slots)
    assert math.isnan(found["all"].bytes)
    assert math.isnan(found["some"].bytes)
    assert (found["all"].seconds, found["some"].seconds > 0) == (0.0, True)


def get(port: Address, path: str) -> str:
    """A page of a monitoring port."""
    with urllib.request.urlopen(f"http://{port}{path}", timeout=30) as answer:
        body: bytes = answer.read()
        return body.decode()


def scrape(port: Address) -> dict[str, float]:
    """All series of serve, without the label of the slot."""
    found = {}
    for line in get(port, "/metrics").splitlines():
        if line.startswith("gaussdecode_serve"):
            name, _, value = line.rpartition(" ")
            bare = re.sub(r'(?<![a-z_]),?slot="orders",?', "", name).replace("{}", "")
            found[bare] = float(value)
    return found


def test_a_server_shows_its_clients(tmp_path: Path) -> None:
    """Positions, what was sent, who is connected, and who was refused; the same on disk for the daemon."""
    root = unpack_landing(tmp_path)
    users = tmp_path / "users"
    write_user(users, "reader", "secret")
    told: dict[str, Any] = {}
    with Served(root, users_file=users, connections=2) as served:
        port = monitor(served.server, Address("127.0.0.1", 0), MonitoringConfig(), "orders")
        try:
            slot = served.add_slot("copy")
            slot.owner = "reader"
            served.add_slot("idle")
            before = scrape(port.address)
            end = served.end_lsn()
            assert math.isnan(before['gaussdecode_serve_behind_bytes{virtual_slot="copy"}'])
            assert before['gaussdecode_serve_behind_seconds{virtual_slot="copy"}'] > 3600
            assert before['gaussdecode_serve_connected{virtual_slot="copy"}'] == 0
            assert before['gaussdecode_serve_rows_total{virtual_slot="copy"}'] == 0
            client = Replication(served, "copy", user="reader", password="secret")
            sent = client.until(end)
            with pytest.raises(psycopg.OperationalError, match="authentication failed"):
                served.connect(user="reader", password="wrong")
            client.confirm(end)
            client.next()
            now = scrape(port.address)
            assert now['gaussdecode_serve_confirmed_lsn{virtual_slot="copy"}'] == end
            assert now['gaussdecode_serve_behind_bytes{virtual_slot="copy"}'] == 0
            assert now['gaussdecode_serve_behind_seconds{virtual_slot="copy"}'] == 0
            assert now['gaussdecode_serve_behind_seconds{virtual_slot="idle"}'] > 3600
            assert now['gaussdecode_serve_connected{virtual_slot="copy"}'] == 1
            rows = sum(1 for _, text in sent if text.startswith((b"table ", b"message: ")))
            assert now['gaussdecode_serve_rows_total{virtual_slot="copy"}'] == rows
            assert now['gaussdecode_serve_sent_bytes_total{virtual_slot="copy"}'] > rows
            assert now['gaussdecode_serve_refused_total{reason="login"}'] == 1
            assert now["gaussdecode_serve_clients"] == 1
            told = json.loads(get(port.address, "/status"))
            assert (told["slot_name"], told["clients"]) == ("orders", 1)
            assert get(port.address, "/readyz") == "ready\n"
            assert "GaussdecodeClientBehind" in get(port.address, "/alerts")
            assert is_running(root)
            wait_until(lambda: read_slots(root)[0].is_connected is True, "it is on disk")
            client.close()
            wait_until(lambda: read_slots(root)[0].is_connected is False, "its end is on disk")
        finally:
            port.close()
    copy, idle = told["virtual_slots"]
    assert (copy["owner"], copy["is_connected"], copy["behind_bytes"]) == ("reader", True, 0)
    assert (idle["is_connected"], idle["is_lost"]) == (False, False)
    assert is_running(root) is False
    kept = {of.name: of for of in read_slots(root)}
    assert (kept["copy"].lsn, kept["copy"].is_connected) == (end, False)


def test_rows_of_functions_count(tmp_path: Path) -> None:
    """What functions of slots show counts as what streams send; a count(*) shows no rows."""
    with Served(unpack_landing(tmp_path)) as served:
        served.add_slot("copy")
        counted = served.server.counts.of(served.server.slots.get("copy"))
        with served.connect() as session:
            peek = "FROM pg_logical_slot_peek_changes('copy', NULL, {})"
            session.execute(f"SELECT count(*) {peek.format('NULL')}")
            assert counted.rows == 0
            sizes = []
            for most in ("1", "NULL"):
                before = counted.rows, counted.bytes
                found = session.execute(f"SELECT data {peek.format(most)}").fetchall()
                rows = sum(text.startswith(("table ", "message: ")) for (text,) in found)
                assert counted.rows - before[0] == rows
                sizes.append(counted.bytes - before[1])
                assert sizes[-1] > sum(len(text) for (text,) in found)
            assert 0 < sizes[0] < sizes[1]


def test_senders_that_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams of temporary slots share a counter: each waits for its own time."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    sent = Sent()
    with sent.waiting():
        now = 110.0
        with sent.waiting():
            now = 111.0
            assert sent.waited_seconds == 12.0
        now = 115.0
    now = 200.0
    assert sent.waited_seconds == 16.0


def test_a_slot_whose_entries_are_gone(tmp_path: Path) -> None:
    """Retention removed what it needs: it is lost, and nobody guesses how old what it missed is."""
    root = unpack_landing(tmp_path)
    with Served(root) as served:
        served.add_slot("lost")
        first = min((root / "commits").glob("*.json"))
        first.rename(tmp_path / first.name)
        values = served.server.counts.metrics()
        assert values["gaussdecode_serve_slot_lost"] == {("lost",): 1.0}
        assert math.isnan(values["gaussdecode_serve_behind_seconds"]["lost",])


def test_looking_does_not_keep_a_server_from_its_start(tmp_path: Path) -> None:
    """Nor does a crash leave a client connected."""
    root = unpack_landing(tmp_path)
    assert is_running(root) is False
    with Served(root) as served:
        served.add_slot("copy").stream(is_active=True)
    assert [of.is_connected for of in read_slots(root)] == [False]
    with Served(root) as served:
        assert [of.is_active for of in served.server.slots] == [False]
