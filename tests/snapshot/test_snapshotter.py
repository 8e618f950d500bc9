"""Whose error is whose: a table's fault is marked at that table, and nothing else ends of it."""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import structlog
from kit.landrun import Landing
from kit.simdisk import SimFiles

from gaussdecode.collect.snapshot_gate import HoldLostError
from gaussdecode.daemon.quarantine import Quarantines
from gaussdecode.errors import (
    ConfigError,
    DiskError,
    LoginRefusedError,
    SequenceError,
    SourceError,
    SourceRefusedError,
    TableError,
    WireError,
)
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.snapshots import WHY_STOPPED, SnapshotStore
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.quarantine import Quarantine
from gaussdecode.model.seal import sealed
from gaussdecode.settings.landing_sections import LandingConfig
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config, MonitoringConfig, RingConfig
from gaussdecode.settings.source_sections import DecodingConfig, SourceConfig
from gaussdecode.snapshot import attempts
from gaussdecode.snapshot.choice import QUARANTINED, RENAMED
from gaussdecode.snapshot.item import Progress, Wanted
from gaussdecode.snapshot.snapshotter import Snapshotter
from gaussdecode.source.export import PublishedTable, TableChangedError

BAD, GOOD = "public.bad", "public.good"


def _table(title: str) -> PublishedTable:
    return PublishedTable("public", title.rpartition(".")[2], 1, False, "d", None)


class _Gate:
    """Of a collector that is always there."""

    is_attended = True

    def hold(self, _: object) -> object:
        return None

    def run(self, _: object, act: Callable[[Any], None]) -> None:
        act(SimpleNamespace(generation=1))

    def release(self, _: object) -> None:
        pass


class _Writer:
    """It commits at once, and notes what the ledger had then."""

    def __init__(self, run: "_Run") -> None:
        self._run = run
        self.ledgers: list[dict[str, Any]] = []

    def intake_of(self, _: int) -> Any:
        return SimpleNamespace(drain=lambda: None, insert=self._insert)

    def _insert(self, draft: Draft, _: object) -> CommitEntry:
        self.ledgers.append(self._run.store.ledger())
        return self._run.log.commit(draft)


class _Run:
    """A snapshotter over a landing, whose reading of `BAD` raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        self.log = log = Landing(SimFiles()).open()
        self.store = SnapshotStore(log.disk)
        self.store.prepare()
        config = Config(
            path=Path("orders.yaml"),
            slot="orders",
            source=SourceConfig(kind=SourceKind.POSTGRESQL, dsn="host=nowhere dbname=shop"),
            decoding=DecodingConfig.of(SourceKind.POSTGRESQL),
            landing=LandingConfig(root=Path("/nowhere")),
            ring=RingConfig(),
            monitoring=MonitoringConfig(),
        )
        context: Any = SimpleNamespace(
            source=None,
            log=log,
            snapshots=self.store,
            table_filter=None,
            gate=_Gate(),
            writer=_Writer(self),
            snapshot_landed=lambda _: None,
            is_left_to_first=lambda *_: False,
        )
        self.writer = context.writer
        self.snapshotter = Snapshotter(config, context, lambda: None)
        self.taken: list[str] = []

        def take(_tools: object, group: Sequence[Wanted]) -> None:
            for item in group:
                if item.title == BAD:
                    raise error
            self.taken += [item.title for item in group]

        monkeypatch.setattr(attempts, "take_at_once", take)

    def take(self) -> None:
        wanted = []
        for title in (BAD, GOOD):
            wanted.append(Wanted(_table(title)))
            self.snapshotter._progress.setdefault(title, Progress())
        self.snapshotter._attempts._take_together(wanted)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a value of a row"),
        KeyError("a value of a row"),
        OverflowError("a value of a row"),
        RuntimeError("a value of a row"),
        pa.ArrowInvalid("a value of a row"),
        WireError("rows that end early", 3),
        SequenceError("a COPY command did not start a copy"),
        ConfigError("no such thing"),
        LoginRefusedError("permission denied for table bad", "42501"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_error_of_a_table_is_that_tables(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It is written down with the way to try again; the others are taken; no value is shown."""
    run = _Run(monkeypatch, error)
    run.take()
    assert run.taken == [GOOD]
    record = run.store.ledger()[BAD]
    assert record["state"] == "failed"
    assert "a value of a row" not in record["reason"]
    reason = run.snapshotter.status()[BAD]["reason"]
    assert "gaussdecode snapshot orders.yaml --table" in reason


@pytest.mark.parametrize(
    "error",
    [
        DiskError("fsync data: Input/output error"),
        OSError(5, "Input/output error"),
        HoldLostError("the session ended"),
        SourceError("the server went away"),
        LoginRefusedError("connecting: the file of the password is away"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_no_tables_fault_is_nobodys(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Disk, session, connection: no table is marked for them."""
    run = _Run(monkeypatch, error)
    with pytest.raises(type(error)):
        run.take()
    assert BAD not in run.store.ledger()


@pytest.mark.parametrize(
    ("kind", "error", "asked"),
    [
        (SourceKind.GAUSSDB, LoginRefusedError("wrong", "28P01"), 1),
        (SourceKind.GAUSSDB, LoginRefusedError("a file is away"), 0),
        (SourceKind.POSTGRESQL, LoginRefusedError("wrong", "28P01"), 0),
    ],
)
def test_a_wrong_password_is_left_to_the_sessions(
    monkeypatch: pytest.MonkeyPatch, kind: SourceKind, error: Exception, asked: int
) -> None:
    """They try it once; each of our rounds would bring the account of a GaussDB nearer to its lock."""
    run = _Run(monkeypatch, error)
    restarts: list[None] = []
    monkeypatch.setattr(
        run.snapshotter._context, "restart_session", lambda: restarts.append(None), raising=False
    )
    source = dataclasses.replace(run.snapshotter._config.source, kind=kind)
    run.snapshotter._config = dataclasses.replace(run.snapshotter._config, source=source)
    run.snapshotter._spare_account(error)
    assert len(restarts) == asked


# ---- what was begun -----------------------------------------------------------------------


def _begun(run: _Run, **facts: object) -> None:
    """Let `BAD` be a table of which some chunks are read."""
    run.store.save(BAD, {"fingerprint": "f", "since_n": 0, "where": None, **facts})
    assert run.store.tables() == [BAD]


def test_table_that_changed_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No chunk of it fits what is read next."""
    run = _Run(monkeypatch, TableChangedError("table public.bad was rewritten"))
    _begun(run)
    run.take()
    assert run.store.tables() == []


def test_table_that_is_not_published_any_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its changes do not come, so that nobody could tell which rows of the chunks still hold."""
    run = _Run(monkeypatch, ValueError())
    _begun(run)
    run.snapshotter._forget_others({GOOD: _table(GOOD)})
    assert run.store.tables() == []


def test_other_request_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks were read under the condition of the request before; those of the same one stay."""
    run = _Run(monkeypatch, ValueError())
    first = run.store.ask({"table": BAD, "where": "id > 7"})
    _begun(run, request=first)
    run.snapshotter._requested(run.store.requests().found, {BAD: _table(BAD)})
    assert run.store.tables() == [BAD]
    run.store.answered(first)
    run.store.ask({"table": BAD, "where": None})
    run.snapshotter._requested(run.store.requests().found, {BAD: _table(BAD)})
    assert run.store.tables() == []


def test_entry_that_was_committed_last_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ended between the entry and the note: the table is not read again."""
    run = _Run(monkeypatch, ValueError())
    run.log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(0, 1, 10)))
    _begun(run)
    said = {"schema": "public", "name": "bad", "oid": 1, "rows": 4, "where": None}
    extra = {"snapshot": {"epoch": 0, "lsn": 10, "tables": {BAD: said}}}
    run.log.commit(Draft(kind=EntryKind.SNAPSHOT, extra=extra))
    run.snapshotter._tools.finish_earlier()
    assert run.store.tables() == []
    assert run.store.ledger()[BAD]["state"] == "done"


def test_what_is_missed_is_noted_unless_it_lands_under_another_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its number: a table that was renamed is the same one."""
    run = _Run(monkeypatch, ValueError())
    run.store.note({BAD: {"state": "done", "oid": 1}, GOOD: {"state": "done", "oid": 2}})
    renamed = "public.renamed"
    run.snapshotter._follow_names({renamed: _table(renamed)})
    states = {title: record["state"] for title, record in run.store.ledger().items()}
    assert states == {BAD: "done", GOOD: "missed"}


def test_condition_needs_a_key() -> None:
    """Rows without one would stand beside those that are there already."""
    shape = SimpleNamespace(table=_table(BAD))
    for where, key, is_refused in (
        ("id > 7", [], True),
        ("id > 7", ["id"], False),
        (None, [], False),
    ):
        task: Any = SimpleNamespace(where=where, record={"key": key}, shape=shape)
        with pytest.raises(SourceRefusedError) if is_refused else contextlib.nullcontext():
            attempts._check_condition(task)


@pytest.mark.parametrize("is_started_again", [False, True])
def test_table_that_was_asked_for_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, *, is_started_again: bool
) -> None:
    """Also where the settings want no rows, and the request with it is answered already."""
    run = _Run(monkeypatch, ValueError())
    subject: Any = run.snapshotter
    subject._lists, subject._has_finished_earlier = False, True
    subject._context.log = SimpleNamespace(position=SourcePosition(1, 1, 1), next_n=5)
    subject._context.gate = SimpleNamespace(is_attended=True)

    def ask() -> None:
        raise SourceError("the server is asked")

    monkeypatch.setattr(subject._tools, "reader", ask)
    if is_started_again:
        run.store.note({BAD: {"state": "asked", "oid": 1}})
    else:
        subject._round()
        run.store.note({BAD: subject._asked(SimpleNamespace(oid=1))})
    with pytest.raises(SourceError, match="the server is asked"):
        subject._round()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "torn"),
        (b'{"table": "public.bad"', "torn"),
        (b'{"table":"public.bad"}', "torn"),
        (sealed(b'{"tables":"public.bad"}'), "its request is unknown"),
        (sealed(b'{"table":7}'), "its request is unknown"),
        (sealed(b'{"table":"public.bad","where":7}'), "its request is unknown"),
    ],
)
def test_request_that_cannot_be_used_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, content: bytes, why: str
) -> None:
    """It is named with its reason and once in the log; what else was asked for is taken up."""
    run = _Run(monkeypatch, ValueError())
    path = f"snapshots/requests/{7:016x}.json"
    run.store.ask({"table": BAD, "where": None})
    handle = run.log.disk.files.create(path)
    run.log.disk.files.write(handle, content)
    with structlog.testing.capture_logs() as lines:
        for _ in range(2):
            ((_, request),) = run.snapshotter._requests()
            assert request["table"] == BAD
    assert why in run.snapshotter.faults[path]
    assert [line["event"] for line in lines] == ["snapshot_request_unreadable"]
    run.store.answered(path)
    run.snapshotter._requests()
    assert run.snapshotter.faults == {}


def test_a_table_that_was_asked_for_twice_is_in_an_entry_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second request stays for the next round: its rows would land twice at one position."""
    run = _Run(monkeypatch, SourceError("nothing raises it"))
    paths = {run.store.ask({"table": GOOD, "where": None}) for _ in range(2)}
    published = {GOOD: _table(GOOD)}
    for left in (1, 0):
        (item,) = run.snapshotter._requested(run.store.requests().found, published)
        assert item.request in paths
        run.store.answered(item.request)
        assert len(run.store.requests().found) == left


def test_a_snapshot_before_a_quarantine_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start looks at the last entries, and notes what was read; the quarantine came after it."""
    run = _Run(monkeypatch, ValueError())
    run.log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(0, 1, 10)))
    said = {"schema": "public", "name": "bad", "oid": 1, "rows": 4, "where": None}
    extra = {"snapshot": {"epoch": 0, "lsn": 10, "tables": {BAD: said}}}
    run.log.commit(Draft(kind=EntryKind.SNAPSHOT, extra=extra))
    run.snapshotter._tools.finish_earlier()
    context: Any = SimpleNamespace(log=run.log, snapshots=run.store, snapshot_landed=lambda: None)
    intake: Any = SimpleNamespace(insert=lambda draft, _: run.log.commit(draft))
    error = TableError("public", "bad", 1, Lsn(11), "a value")
    Quarantines(run.snapshotter._config, context)._commit(intake, error)
    run.snapshotter._tools.finish_earlier()
    assert run.store.ledger()[BAD]["state"] == "quarantined"
    run.log.commit(Draft(kind=EntryKind.SNAPSHOT, extra=extra))
    run.snapshotter._tools.finish_earlier()
    assert run.store.ledger()[BAD]["state"] == "done"


ILL: dict[str, Any] = {"state": QUARANTINED, "oid": 1, "reason": "bad", WHY_STOPPED: "bad"}
NEW = "public.new"
HELD = Quarantine(BAD, "public", "bad", 1, Lsn(11), "a value")


def _in_quarantine(run: _Run) -> None:
    run.log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(0, 1, 10)))
    run.log.commit(Draft(kind=EntryKind.QUARANTINE, extra=HELD.to_extra()))


def _said(run: _Run) -> list[Quarantine]:
    """Quarantines of the log, without the first."""
    entries = run.log.iterate(2, run.log.next_n - 1)
    return [Quarantine.from_extra(of.extra) for of in entries if of.kind is EntryKind.QUARANTINE]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_quarantine_is_said_of_the_name_of_now(
    monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    """In the log, and before the ledger; once. Retention may have removed the entry before."""
    run = _Run(monkeypatch, ValueError())
    _in_quarantine(run)
    ill = ILL if is_known else {**ILL, "oid": 3}
    run.store.note({BAD: ill, GOOD: {"state": "done", "oid": 2}})
    published = {GOOD: ill["oid"], BAD: 2}
    tables = {
        title: dataclasses.replace(_table(title), oid=oid) for title, oid in published.items()
    }
    for _ in range(2):
        run.snapshotter._follow_names(tables)
    (said,) = _said(run)
    if is_known:
        assert said == dataclasses.replace(HELD, table=GOOD, name="good")
    else:
        assert said == Quarantine(GOOD, "public", "good", 3, Lsn(0), "bad")
    assert run.writer.ledgers[0][BAD] == ill
    states = {title: of["state"] for title, of in run.store.ledger().items()}
    assert states == {BAD: RENAMED, GOOD: QUARANTINED}


def test_where_the_session_ends_a_quarantine_stays_at_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next round says it."""
    run = _Run(monkeypatch, ValueError())
    _in_quarantine(run)
    run.store.note({BAD: ILL})
    subject: Any = run.snapshotter

    def lose(*_: object) -> None:
        raise HoldLostError("the session ended")

    with monkeypatch.context() as patch:
        patch.setattr(subject._context.gate, "run", lose)
        with pytest.raises(HoldLostError):
            subject._follow_names({NEW: _table(NEW)})
    assert run.store.ledger() == {BAD: ILL}
    subject._follow_names({NEW: _table(NEW)})
    assert [of.title for of in _said(run)] == [NEW]
    assert run.store.ledger()[NEW]["state"] == QUARANTINED


def test_a_kill_between_log_and_ledger_has_it_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, and what is said twice ends at once."""
    run = _Run(monkeypatch, ValueError())
    _in_quarantine(run)
    run.store.note({BAD: ILL})

    def die(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run.store, "note", die)
        with pytest.raises(KeyboardInterrupt):
            run.snapshotter._follow_names({NEW: _table(NEW)})
    run.snapshotter._follow_names({NEW: _table(NEW)})
    one = dataclasses.replace(HELD, table=NEW, name="new")
    assert _said(run) == [one, one]


def _round(run: _Run, monkeypatch: pytest.MonkeyPatch, *titles: str) -> None:
    """A round in which tables of OID 1 are published."""
    subject: Any = run.snapshotter
    reader = SimpleNamespace(published=lambda: [_table(title) for title in titles])
    monkeypatch.setattr(subject._tools, "reader", lambda: contextlib.nullcontext(reader))
    monkeypatch.setattr(subject, "_missing", lambda *_: [])
    monkeypatch.setattr(subject, "_landing_now", lambda wanted: wanted)
    subject._round()


def test_a_table_in_quarantine_that_was_asked_for_is_renamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wish goes along; it has not failed."""
    run = _Run(monkeypatch, ValueError())
    _in_quarantine(run)
    run.store.note({BAD: {"state": "asked", "oid": 1, "n": 1, WHY_STOPPED: "bad"}})
    _round(run, monkeypatch, NEW)
    ledger = run.store.ledger()
    assert (ledger[NEW]["state"], ledger[NEW]["oid"]) == ("asked", 1)
    assert "state" not in ledger[BAD]
    assert [of.title for of in _said(run)] == [NEW]


def test_a_table_that_failed_is_still_known_by_its_oid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its quarantine goes along when it is published again, under another name."""
    run = _Run(monkeypatch, ValueError())
    _in_quarantine(run)
    run.store.note({BAD: {"state": "asked", "oid": 1, "n": 1, WHY_STOPPED: "bad"}})
    _round(run, monkeypatch)
    assert run.store.ledger()[BAD]["state"] == "failed"
    run.store.ask({"table": NEW, "where": None})
    monkeypatch.setattr(run.snapshotter._attempts, "take", lambda _: None)
    _round(run, monkeypatch, NEW)
    assert run.store.ledger()[NEW][WHY_STOPPED] == "bad"


@pytest.mark.parametrize("is_begun", [True, False])
def test_a_record_without_a_number_is_older_than_the_quarantine(
    monkeypatch: pytest.MonkeyPatch, *, is_begun: bool
) -> None:
    """Versions before noted none: the log tells that the snapshot was before."""
    run = _Run(monkeypatch, ValueError())
    run.log.commit(Draft(kind=EntryKind.GENESIS, position=SourcePosition(0, 1, 10)))
    if is_begun:
        _begun(run)
    said = {"schema": "public", "name": "bad", "oid": 1, "rows": 4, "where": None}
    extra = {"snapshot": {"epoch": 0, "lsn": 10, "tables": {BAD: said}}}
    run.log.commit(Draft(kind=EntryKind.SNAPSHOT, extra=extra))
    run.log.commit(Draft(kind=EntryKind.QUARANTINE, extra=HELD.to_extra()))
    run.store.note({BAD: ILL})
    run.snapshotter._tools.finish_earlier()
    assert run.store.ledger()[BAD] == ILL
