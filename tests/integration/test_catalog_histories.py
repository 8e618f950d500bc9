"""Random lives of tables with all commands that change stored rows: no difference that the log did not say."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from kit.cataloghistory import CatalogHistory
from kit.daemon import Daemon
from kit.postgres import Database, Postgres
from kit.shards import ShardsDaemon, prepared

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]

_MAJORS: Final = (15, 18, 15)


def _config(*, reads_again: bool) -> dict[str, Any]:  # Any: sections
    return {
        "landing": {"on-suspect": "snapshot" if reads_again else "record"},
        "snapshot": {"mode": "initial" if reads_again else "none", "suspect-interval": "1s"},
    }


def _live(history: CatalogHistory, daemon: Daemon, target: Path, stops: int) -> None:
    with daemon:
        history.insert_all()
        for _ in range(stops):
            history.live(45 // stops)
            history.compare(target)
        assert daemon.stop() == 0
    print(history.equal, "equal,", history.stopped, "stopped")


@pytest.mark.parametrize(("postgres", "seed"), [(15, 1), (18, 2)], indirect=["postgres"])
def test_random_history(
    database: Database, make_daemon: MakeDaemon, tmp_path: Path, seed: int
) -> None:
    """Streaming, killed and down, with a target that goes along."""
    reads_again = seed % 2 == 1
    daemon = make_daemon(database, config=_config(reads_again=reads_again))
    history = CatalogHistory({"": database}, daemon, seed, reads_again=reads_again)
    database.create_slot()
    _live(history, daemon, tmp_path / "target", 3)
    assert history.equal > history.stopped / 4


@pytest.mark.parametrize(("seed", "count"), [(3, 2), (4, 3)])
def test_random_history_of_several(
    servers: Callable[[int], Postgres], tmp_path: Path, seed: int, count: int
) -> None:
    """Sources whose columns have other numbers, each altered at its own pace."""
    shards = {
        f"s{number}": Database(servers(major), f"history_{os.getpid()}_{seed}_{number}")
        for number, major in enumerate(_MAJORS[:count])
    }
    prepared(shards)
    reads_again = seed % 2 == 1
    daemon = ShardsDaemon(shards, tmp_path, config=_config(reads_again=reads_again))
    history = CatalogHistory(shards, daemon, seed, reads_again=reads_again)
    for shard in shards.values():
        shard.execute("ALTER PUBLICATION all_tables SET (publish_via_partition_root)")
        shard.create_slot()
    _live(history, daemon, tmp_path / "target", 7)
    assert history.equal
    for shard in shards.values():
        shard.drop()
