"""Random lives of tables with all commands that change stored rows: no difference that the log did not say."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kit.cataloghistory import CatalogHistory
from kit.daemon import Daemon
from kit.postgres import Database

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


@pytest.mark.parametrize(("postgres", "seed"), [(15, 1), (18, 2)], indirect=["postgres"])
def test_random_history(
    database: Database, make_daemon: MakeDaemon, tmp_path: Path, seed: int
) -> None:
    """Streaming, killed and down, with a target that goes along."""
    policy = "snapshot" if seed % 2 else "record"
    config = {
        "landing": {"on-suspect": policy},
        "snapshot": {"mode": "initial", "suspect-interval": "1s"},
    }
    daemon = make_daemon(database, config=config)
    history = CatalogHistory(database, daemon, seed, reads_again=policy == "snapshot")
    database.create_slot()
    with daemon:
        history.insert_all()
        for _ in range(3):
            history.live(15)
            history.compare(tmp_path / "target")
        assert daemon.stop() == 0
    print(history.equal, "equal,", history.stopped, "stopped")
    assert history.equal > history.stopped / 4
