"""Whose error is whose: a table's fault is marked at that table, and nothing else ends of it."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from kit.landrun import Landing
from kit.simdisk import SimFiles

from gaussdecode.collect.gate import HoldLostError
from gaussdecode.daemon import snapshotter
from gaussdecode.daemon.snapshotitem import Progress, Wanted
from gaussdecode.daemon.snapshotter import Snapshotter
from gaussdecode.errors import ConfigError, DiskError, SequenceError, SourceError, WireError
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.options import SourceKind
from gaussdecode.settings import (
    Config,
    DecodingConfig,
    LandingConfig,
    MonitoringConfig,
    RingConfig,
    SourceConfig,
)
from gaussdecode.source.export import PublishedTable

BAD, GOOD = "public.bad", "public.good"


class _Run:
    """A snapshotter over a landing, whose reading of `BAD` raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        log = Landing(SimFiles()).open()
        self.store = SnapshotStore(log.disk)
        self.store.prepare()
        config = Config(
            path=Path("orders.yaml"),
            slot="orders",
            source=SourceConfig(kind=SourceKind.POSTGRESQL, dsn="host=nowhere dbname=shop"),
            decoding=DecodingConfig(),
            landing=LandingConfig(root=Path("/nowhere")),
            ring=RingConfig(),
            monitoring=MonitoringConfig(),
        )
        context: Any = SimpleNamespace(log=log, snapshots=self.store, table_filter=None)
        self.snapshotter = Snapshotter(config, context, lambda: None)
        self.taken: list[str] = []

        def take(_tools: object, group: Sequence[Wanted]) -> None:
            for item in group:
                if item.title == BAD:
                    raise error
            self.taken += [item.title for item in group]

        monkeypatch.setattr(snapshotter, "take_at_once", take)

    def take(self) -> None:
        wanted = []
        for title in (BAD, GOOD):
            item: Any = SimpleNamespace(
                title=title, oid=1, schema="public", name=title.rpartition(".")[2]
            )
            table: PublishedTable = item
            wanted.append(Wanted(table))
            self.snapshotter._progress.setdefault(title, Progress())
        self.snapshotter._take_together(wanted)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a value of a row"),
        KeyError("a value of a row"),
        OverflowError("a value of a row"),
        RuntimeError("a value of a row"),
        pa.ArrowInvalid("a value of a row"),
        WireError("rows that end early", 3),
        SequenceError("a command was to copy and did not"),
        ConfigError("no such thing"),
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
