"""Random workloads over all types, on every server: what landed equals the source."""

from collections import Counter
from collections.abc import Callable

import pytest
from kit import oracle
from kit.daemon import Daemon
from kit.postgres import Database
from kit.workload import Workload

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(("seed", "decoders"), [(1, 1), (2, 2), (3, 4)])
def test_landing_equals_source(
    database: Database, make_daemon: Callable[..., Daemon], seed: int, decoders: int
) -> None:
    """Replaying what landed gives the source's tables, whatever the sessions did."""
    workload = Workload(database, seed)
    workload.create()
    database.create_slot()
    config = {"decoding": {"parallel-decode-num": decoders}}
    with make_daemon(database, config=config) as daemon:
        workload.run(240)
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database)
    sent = Counter(content for worker in workload.workers for content in worker.messages)
    outside = [row for row in landed.messages if row["gd_seq"] is None]
    assert Counter(row["content"].decode() for row in outside) == sent


def test_late_start(database_15: Database, make_daemon: Callable[..., Daemon]) -> None:
    """What was committed before the daemon first started lands all the same."""
    workload = Workload(database_15, 4)
    workload.create()
    database_15.create_slot()
    workload.run(150)
    with make_daemon(database_15) as daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    oracle.check(daemon.root, database_15)


def test_large_transaction(database_15: Database, make_daemon: Callable[..., Daemon]) -> None:
    """A transaction beyond all memory limits lands as one entry, between small ones."""
    database_15.execute("CREATE SCHEMA kit")
    database_15.execute("CREATE TABLE kit.big (id int8 PRIMARY KEY, v text)")
    database_15.create_slot()
    config = {
        "decoding": {"max-txn-in-memory": 1},
        "landing": {"memory-bytes": "32MiB", "target-file-size": "1MiB"},
    }
    with make_daemon(database_15, config=config) as daemon:
        database_15.execute("INSERT INTO kit.big VALUES (0, 'before')")
        database_15.execute(
            "INSERT INTO kit.big SELECT g, repeat(md5(g::text), 8) FROM generate_series(1, 200000) g"
        )
        database_15.execute("UPDATE kit.big SET v = 'after' WHERE id = 0")
        daemon.catch_up()
        assert daemon.stop() == 0
    landed = oracle.check(daemon.root, database_15)
    assert len({change.xid for change in landed.changes}) == 3
    of_big = [e for e in landed.entries if any(f["rows"] > 1000 for f in e["files"])]
    assert len(of_big) == 1, "the transaction is spread over several entries"
    assert len(of_big[0]["files"]) > 2, "it fits in one file, so the test is too small"
    assert not list((daemon.root / "spool").iterdir())
