"""Tables that the source has dropped: what is built from the landing follows, and nothing stands still."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database

from gaussdecode.cli import main
from gaussdecode.errors import EX_IOERR, EX_OK, EX_UNAVAILABLE
from gaussdecode.land.verify import verify
from gaussdecode.spark.maintain.status import metrics_text, status
from gaussdecode.spark.target.deletion_vectors import current_rows
from gaussdecode.spark.target.store import Target

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


class Lake:
    """A target of a daemon's landing, by the commands."""

    def __init__(self, daemon: Daemon, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.daemon, self.root, self._capsys = daemon, root, capsys

    def run(self, action: str, *arguments: str) -> tuple[int, str, str]:
        """Exit status, output and errors of ``gaussdecode spark``."""
        self._capsys.readouterr()
        found = main(["spark", action, str(self.daemon.root), str(self.root), *arguments])
        return found, *self._capsys.readouterr()

    def apply(self) -> tuple[int, str]:
        """Bring it up to the log, with all there is."""
        found, _, said = self.run("apply", "--local", "--history", "--changelog")
        return found, said

    def verify(self) -> tuple[int, dict[str, Any]]:
        """Compare it with the source; results by table."""
        dsn = f"{self.daemon.database.dsn} sslmode=disable"
        options = ("--dsn", dsn, "--allow-insecure", "--local", "--json")
        found, out, said = self.run("verify", *options)
        assert out, said
        return found, {of["table"]: of for of in json.loads(out)["tables"]}

    def rows(self, name: str, kind: str = "current") -> list[int]:
        """Keys of a table."""
        store, table = Target(self.root), f"public.{name}"
        version = store.newest(table)
        assert version is not None
        return sorted(
            row["id"]
            for file in getattr(version, kind)
            for row in current_rows(store.table_root(table), file).to_pylist()
            if row["id"] is not None  # as in the changelog's row of a table that was emptied
        )


def let_go(daemon: Daemon, title: str) -> int:
    """Run the command that lets a table go."""
    return main(["snapshot", str(daemon.config_path), "--table", title, "--dropped"])


@pytest.mark.parametrize("is_down", [False, True])
def test_a_dropped_table_is_let_go_and_comes_back(
    database_15: Database,
    make_daemon: MakeDaemon,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    is_down: bool,
) -> None:
    """Also where it was dropped while nobody read, so that its last changes fit nothing."""
    database = database_15
    for name in ("t", "other"):
        database.execute(f"CREATE TABLE public.{name} (id int4 PRIMARY KEY, v text)")
    database.create_slot()
    with make_daemon(database) as daemon:
        lake = Lake(daemon, tmp_path / "lake", capsys)
        for name in ("t", "other"):
            database.execute(f"INSERT INTO public.{name} VALUES (1, 'a'), (2, 'b')")
        daemon.catch_up()
        assert lake.apply()[0] == EX_OK
        if is_down:
            assert daemon.stop() == 0
        database.execute("INSERT INTO public.t VALUES (3, 'c')")
        if not is_down:
            daemon.catch_up()
        database.execute("DROP TABLE public.t; INSERT INTO public.other VALUES (3, 'c')")
        if is_down:
            daemon.start()
        daemon.catch_up()

        found, said = lake.apply()
        assert found == EX_OK, said
        assert lake.rows("other") == [1, 2, 3]
        assert lake.rows("t") == ([1, 2] if is_down else [1, 2, 3])
        if is_down:
            assert "public.t is gone from the source" in said
            assert "--table public.t --dropped" in said
            assert "gone" in lake.run("status")[1]
        text = metrics_text(daemon.root, lake.root)
        assert 'stopped_tables{target="' + str(lake.root) + '"} 0' in text
        assert f'gone_tables{{target="{lake.root}"}} {int(is_down)}' in text
        found, tables = lake.verify()
        assert found == EX_IOERR
        if not is_down:
            assert "--dropped" in tables["public.t"]["why_not"]
        assert tables["public.other"]["why_not"] is None

        assert let_go(daemon, "public.other") == EX_UNAVAILABLE
        assert "has a table of this name" in capsys.readouterr().err
        assert let_go(daemon, "public.never") == EX_UNAVAILABLE
        assert "nothing of it has landed" in capsys.readouterr().err
        assert let_go(daemon, "public.t") == EX_OK
        assert "0 rows" in capsys.readouterr().out
        found, said = lake.apply()
        assert (found, said) == (EX_OK, "")
        assert lake.rows("t") == []
        assert lake.rows("t", "closed") == ([1, 2] if is_down else [1, 2, 3])
        assert {1, 2, 3} <= {*lake.rows("t", "changelog")}
        assert status(daemon.root, lake.root).stopped == {}
        assert lake.verify()[0] == EX_OK

        database.execute(
            "CREATE TABLE public.t (id int4 PRIMARY KEY, w int8); INSERT INTO public.t VALUES (7, 8)"
        )
        daemon.catch_up()
        assert lake.apply()[0] == EX_OK
        assert lake.rows("t") == [7]
        found, tables = lake.verify()
        assert found == EX_OK, tables
        assert daemon.stop() == 0
    oracle.check_log(landing.read(daemon.root).entries)
    assert verify(daemon.root).is_clean


def test_a_table_in_quarantine_is_let_go(
    database_15: Database, make_daemon: MakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing else could end its quarantine once it is gone; a table of its name lands again."""
    database = database_15
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, v text)")
    database.create_slot()
    config = {
        "source": {"max-row-bytes": "2MiB"},
        "landing": {"on-table-error": "quarantine"},
    }
    with make_daemon(database, config=config) as daemon:
        database.execute("INSERT INTO public.t VALUES (1, 'a')")
        daemon.catch_up()
        database.execute("INSERT INTO public.t VALUES (2, repeat('z', 3 << 20))")
        daemon.catch_up()
        assert main(["gaps", "--unaccepted", str(daemon.root)]) == EX_IOERR
        database.execute("DROP TABLE public.t")
        assert let_go(daemon, "public.t") == EX_OK
        capsys.readouterr()
        assert main(["gaps", "--unaccepted", str(daemon.root)]) == EX_OK
        database.execute(
            "CREATE TABLE public.t (id int4 PRIMARY KEY); INSERT INTO public.t VALUES (3)"
        )
        daemon.catch_up()
        assert daemon.stop() == 0
    effective = landing.read(daemon.root).effective()
    assert [change.new["id"] for change in effective if change.op != "T"] == [3]


def test_what_was_asked_while_no_daemon_ran_is_done_by_the_next(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Killed before it is asked for, and in the middle: the entry is there once."""
    database = database_15
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database.create_slot()
    with make_daemon(database) as daemon:
        database.execute("INSERT INTO public.t VALUES (1)")
        daemon.catch_up()
        daemon.kill9()
        database.execute("DROP TABLE public.t")
        assert main(["snapshot", str(daemon.config_path), "--table", "public.t", "--dropped",
                     "--no-wait"]) == EX_OK  # fmt: skip
        daemon.environment["GAUSSDECODE_FAILPOINTS"] = "snapshot_committed=kill"
        daemon.start()
        assert daemon.wait() == -9
        daemon.environment.clear()
        daemon.start()
        daemon.wait_while_running(
            lambda: not list((daemon.root / "snapshots" / "requests").iterdir()), "an answer"
        )
        assert daemon.stop() == 0
    emptied = [entry for entry in daemon.entries() if entry["kind"] == "snapshot"]
    assert {entry["extra"]["snapshot"]["tables"]["public.t"]["rows"] for entry in emptied} == {0}
    assert {change.op for change in landing.read(daemon.root).effective()} == {"T"}
