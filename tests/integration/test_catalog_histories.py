"""Random lives of tables with all commands that change stored rows: no difference that the log did not say."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.cataloghistory import CatalogHistory
from kit.daemon import Daemon
from kit.postgres import MAJORS, Database, Postgres
from kit.shards import ShardsDaemon, prepared

from gaussdecode.source.postgresql.ddl import install_sql

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def _seeds(*usual: int) -> list[int]:
    """Those of GAUSSDECODE_SEEDS (``first-last``) that are this test's: of one source each third."""
    first, _, last = os.environ.get("GAUSSDECODE_SEEDS", "").partition("-")
    if not first:
        return list(usual)
    is_of_one = all(seed % 3 == 0 for seed in usual)
    return [s for s in range(int(first), int(last) + 1) if (s % 3 == 0) == is_of_one]


def _major(seed: int, number: int = 0) -> int:
    return MAJORS[(seed + 2 * number) % len(MAJORS)]


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
        if history.seed % 4 == 0:
            history.restore_one()
        else:
            assert daemon.stop() == 0
    print(history.equal, "equal,", history.stopped, "stopped")


@pytest.mark.parametrize(
    ("postgres", "seed"),
    [(_major(seed), seed) for seed in _seeds(6, 9)],
    indirect=["postgres"],
)
def test_random_history(
    database: Database, make_daemon: MakeDaemon, tmp_path: Path, seed: int
) -> None:
    """Streaming, killed and down, with a target that goes along; with recorded DDL where the seed says so."""
    reads_again = seed % 2 == 1
    daemon = make_daemon(database, config=_config(reads_again=reads_again))
    if seed // 3 % 2 == 0:
        database.execute(install_sql())
    history = CatalogHistory({"": database}, daemon, seed, reads_again=reads_again)
    database.create_slot()
    _live(history, daemon, tmp_path / "target", 3)
    assert history.equal > history.stopped / 4


@pytest.mark.parametrize("seed", _seeds(1, 8))
def test_random_history_of_several(
    servers: Callable[[int], Postgres], tmp_path: Path, seed: int
) -> None:
    """Sources whose columns have other numbers, each altered at its own pace."""
    shards = {
        f"s{number}": Database(
            servers(_major(seed, number)), f"history_{os.getpid()}_{seed}_{number}"
        )
        for number in range(1 + seed % 3)
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
