"""Transactions that the server streams while they are open land as those that it sends whole."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database
from kit.workload import Workload

pytestmark = pytest.mark.integration

AT_ONCE = 160000  # from here on a server can be told to stream every change


def stream_early(database: Database) -> None:
    """Have new sessions of the database stream as soon as they may."""
    database.execute(f'ALTER DATABASE "{database.name}" SET logical_decoding_work_mem = 64')
    if int(database.execute("SHOW server_version_num")[0][0]) >= AT_ONCE:
        setting = "debug_logical_replication_streaming = immediate"
        database.execute(f'ALTER DATABASE "{database.name}" SET {setting}')


def beside(daemon: Daemon, directory: Path, streaming: str) -> Daemon:
    """A second daemon, of a slot of its own at the same position."""
    slot = f"{daemon.database.slot}_2"
    daemon.database.copy_slot(slot)
    directory.mkdir()
    other = Daemon(daemon.database, directory, config={"source": {"streaming": streaming}})
    other.write_config_value("slot", slot)
    return other


def rows_of(root: Path) -> list[tuple[object, ...]]:
    """What landed, in order: all that a reader sees but files and entries."""
    return [
        (
            *change.order, change.schema.table, change.op, change.xid, str(change.new), str(change.old),
            str(sorted(change.unchanged)), str(change.raw),
            [(field, str(kind)) for field, kind in change.types.items()],
        )
        for change in landing.read(root).changes
    ]  # fmt: skip


def spilled(database: Database) -> dict[str, tuple[int, int]]:
    """Transactions that the server spilled and streamed, by slot."""
    rows = database.execute(
        "SELECT slot_name, spill_txns, stream_txns FROM pg_stat_replication_slots"
    )
    return {name: (int(spills), int(streams)) for name, spills, streams in rows}


@pytest.mark.parametrize(("streaming", "decoders"), [("on", 1), ("parallel", 3)])
def test_streamed_equals_whole(
    database: Database,
    make_daemon: Callable[..., Daemon],
    tmp_path: Path,
    streaming: str,
    decoders: int,
) -> None:
    """Savepoints, rollbacks, DDL, truncates, prepared transactions: row for row, with positions."""
    workload = Workload(database, 7 + decoders)
    workload.create()
    database.create_slot()
    stream_early(database)
    with make_daemon(database) as whole:
        streamed = beside(whole, tmp_path / "streamed", streaming)
        streamed.write_config(decoding={"parallel-decode-num": decoders})
        with streamed:
            workload.run(240)
            for daemon in (whole, streamed):
                daemon.catch_up()
            counts = spilled(database)
            assert streamed.stop() == 0
            assert whole.stop() == 0
    assert rows_of(streamed.root) == rows_of(whole.root)
    assert oracle.check(streamed.root, database).changes
    assert counts[f"{database.slot}_2"][1] > 0, "nothing was streamed"
    assert counts[database.slot][1] == 0
