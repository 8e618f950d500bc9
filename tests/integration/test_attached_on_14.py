"""A walsender of PostgreSQL 14 sends rows of a partition under the name that it first sent them by."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import landing, targets
from kit.daemon import Daemon
from kit.postgres import Database

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("postgres", [14, 15], indirect=True)
@pytest.mark.parametrize("policy", ["record", "snapshot"])
def test_the_connection_is_renewed(
    database: Database, make_daemon: Callable[..., Daemon], tmp_path: Path, policy: str
) -> None:
    """After ATTACH and after DETACH: what came under the wrong name is suspect, and later rows come right."""
    execute = database.execute
    execute("CREATE TABLE t (id int, k int, PRIMARY KEY (id, k)) PARTITION BY LIST (k)")
    for k in (1, 2):
        execute(f"CREATE TABLE t_{k} PARTITION OF t FOR VALUES IN ({k})")
    execute("CREATE TABLE alone (id int, k int, PRIMARY KEY (id, k))")
    execute(f'ALTER PUBLICATION "{database.publication}" SET (publish_via_partition_root)')
    config: dict[str, Any] = {
        "landing": {"on-suspect": policy, "max-commit-interval": "0.2s"},
        "snapshot": {"mode": "initial", "suspect-interval": "1s"},
    }
    database.create_slot()
    with make_daemon(database, config=config) as daemon:
        execute("INSERT INTO t VALUES (1, 1), (2, 2); INSERT INTO alone VALUES (3, 3)")
        daemon.catch_up()
        execute("ALTER TABLE t DETACH PARTITION t_1")
        execute("ALTER TABLE t ATTACH PARTITION alone FOR VALUES IN (3)")
        execute("INSERT INTO t VALUES (4, 2), (5, 3); INSERT INTO t_1 VALUES (6, 1)")
        daemon.catch_up()
        is_14 = database.server.major == 14
        if is_14:
            daemon.wait_while_running(
                lambda: "connection_renewed" in daemon.log.read_text(), "another connection"
            )
            daemon.wait_while_running(lambda: _suspects(daemon) >= 2, "what it says")
        daemon.wait_for_state("streaming")
        execute("INSERT INTO t VALUES (7, 3), (8, 2); INSERT INTO t_1 VALUES (9, 1)")
        daemon.catch_up()
        assert daemon.log.read_text().count("connection_renewed") == int(is_14)
        if policy == "record":
            changes = landing.read(daemon.root).changes  # with a snapshot's rows, if one was there
            last = [of for of in changes if not of.is_snapshot][-3:]
            assert [of.schema.table[1] for of in last] == ["t", "t", "t_1"]
            assert daemon.stop() == 0
            return
        daemon.wait_while_running(lambda: _is_equal(database, daemon, tmp_path), "the rows again")
        assert daemon.stop() == 0


def _suspects(daemon: Daemon) -> int:
    return sum(entry["kind"] == "suspect" for entry in daemon.entries())


def _is_equal(database: Database, daemon: Daemon, directory: Path) -> bool:
    target = Path(tempfile.mkdtemp(dir=directory))
    summary = targets.apply_local(daemon.root, target)
    ours = {"public.t", "public.t_1"}
    found = targets.compare(database, summary, target, ours.__contains__)
    return not found.different and found.equal == ours
