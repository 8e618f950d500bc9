"""An operator accepts a gap: its positions are recorded, and the daemon goes on after it."""

import io
from collections.abc import Callable

import pytest
from kit import landing, oracle
from kit.daemon import Daemon, Json
from kit.postgres import Database, Postgres

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_IOERR, EX_OK
from gaussdecode.land.verify import verify
from gaussdecode.model.lsn import Lsn
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.merge.planner import make_plan

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


class Terminal(io.StringIO):
    """Standard input where somebody types."""

    def isatty(self) -> bool:
        return True


def stopped(database: Database, make_daemon: MakeDaemon) -> Daemon:
    """A daemon that has landed a row, and was stopped."""
    daemon = make_daemon(database)
    daemon.land_a_row()
    return daemon


def accept(daemon: Daemon, *arguments: str) -> int:
    """Run the command."""
    return main(["slot", "accept-gap", str(daemon.config_path), *arguments])


def drop_slot(database: Database) -> None:
    """Drop it as somebody else would."""
    database.execute(f"SELECT pg_drop_replication_slot('{database.slot}')")


def gap_entries(daemon: Daemon) -> list[Json]:
    """Entries of kind gap."""
    return [entry for entry in daemon.entries() if entry["kind"] == "gap"]


def goes_on(database: Database, daemon: Daemon, landed: list[int]) -> None:
    """The daemon lands another row after the gap, in epoch 2, and the landing is sound."""
    database.execute("INSERT INTO public.t VALUES (100)")
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == EX_OK
    found = landing.read(daemon.root)
    assert [change.new["id"] for change in found.changes] == [*landed, 100]
    assert [change.order[0] for change in found.changes] == [1] * len(landed) + [2]
    oracle.check_log(found.entries)
    oracle.check_order(found)
    assert verify(daemon.root).is_clean


def test_a_dropped_slot_is_made_again(
    database_15: Database, make_daemon: MakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only with the exact beginning; the entry has both ends, and readers are stopped by it."""
    daemon = stopped(database_15, make_daemon)
    begin = daemon.durable_lsn()
    drop_slot(database_15)
    database_15.execute("INSERT INTO public.t VALUES (2)")
    assert daemon.start().wait() == EX_CONFIG
    assert "gaussdecode slot accept-gap" in daemon.log_tail()
    before = daemon.entries()

    assert accept(daemon) == EX_CONFIG
    assert f"--from-lsn {Lsn(begin)}" in capsys.readouterr().err
    assert accept(daemon, "--from-lsn", str(Lsn(begin + 1))) == EX_CONFIG
    assert f"the gap begins at {Lsn(begin)}, not at" in capsys.readouterr().err
    assert daemon.entries() == before

    assert accept(daemon, "--from-lsn", str(Lsn(begin))) == EX_OK
    told, accepted = gap_entries(daemon)
    _, confirmed = database_15.slot_positions()
    extra = accepted["extra"]
    assert (extra["reason"], extra["is_open"], extra["is_accepted"]) == (
        "slot_missing", False, True,
    )  # fmt: skip
    assert (extra["from_lsn"], extra["until_lsn"]) == (begin, confirmed)
    (position,) = accepted["positions"].values()
    assert (position["epoch"], position["lsn"]) == (2, confirmed)
    capsys.readouterr()

    goes_on(database_15, daemon, [1])
    assert main(["gaps", str(daemon.root)]) == EX_IOERR
    assert f"{Lsn(confirmed)}" in capsys.readouterr().out
    reader = Landing(daemon.root)
    assert make_plan(reader, {}, -1, reader.last_n).gap == told["n"]
    through = make_plan(reader, {}, -1, reader.last_n, accept_gaps=True)
    assert through.accepted_gaps == [told["n"], accepted["n"]]
    assert accept(daemon, "--from-lsn", str(Lsn(begin))) == EX_CONFIG
    assert "there is no gap to accept" in capsys.readouterr().err


def test_a_slot_made_again_is_taken_as_it_is(
    database_15: Database, make_daemon: MakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gap ends where the new slot begins; a person types the beginning, and may mistype."""
    daemon = stopped(database_15, make_daemon)
    begin = daemon.durable_lsn()
    drop_slot(database_15)
    database_15.execute("INSERT INTO public.t VALUES (2)")
    database_15.create_slot()
    _, confirmed = database_15.slot_positions()
    monkeypatch.setattr("sys.stdin", Terminal("yes\n"))
    assert accept(daemon) == EX_CONFIG
    assert gap_entries(daemon) == []
    monkeypatch.setattr("sys.stdin", Terminal(f"{Lsn(begin)}\n"))
    assert accept(daemon) == EX_OK
    (entry,) = gap_entries(daemon)
    extra = entry["extra"]
    assert extra["reason"] == "slot_advanced"
    assert (extra["from_lsn"], extra["until_lsn"]) == (begin, confirmed)
    assert database_15.slot_positions()[1] == confirmed, "the slot was left where it stood"
    goes_on(database_15, daemon, [1])


def test_what_is_no_gap_is_refused(
    database_15: Database, make_daemon: MakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """A running daemon, a slot that has everything, another plug-in, another server, no landing."""
    daemon = stopped(database_15, make_daemon)
    before = daemon.entries()
    assert accept(daemon, "--from-lsn", "0/1") == EX_CONFIG
    assert "there is no gap to accept" in capsys.readouterr().err
    daemon.start().wait_for_state("streaming")
    assert accept(daemon, "--from-lsn", "0/1") == EX_IOERR
    assert daemon.stop() == EX_OK

    drop_slot(database_15)
    database_15.execute(
        f"SELECT pg_create_logical_replication_slot('{database_15.slot}', 'test_decoding')"
    )
    assert accept(daemon, "--from-lsn", "0/1") == EX_CONFIG
    assert "plug-in test_decoding, pgoutput is needed" in capsys.readouterr().err
    other = f"{database_15.server.dsn('postgres')} sslmode=disable"
    daemon.write_config(source={"dsn": other})
    assert accept(daemon, "--from-lsn", "0/1") == EX_CONFIG
    assert "belongs to database" in capsys.readouterr().err
    daemon.write_config(landing={"root": str(daemon.root.parent / "nowhere")})
    assert accept(daemon, "--from-lsn", "0/1") == EX_CONFIG
    assert "holds no landing" in capsys.readouterr().err
    assert not (daemon.root.parent / "nowhere").exists()
    assert daemon.entries()[: len(before)] == before
    assert gap_entries(daemon) == []


def test_an_unfinished_snapshot_is_begun_again(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Chunks read before the gap would miss the changes in it, so they are forgotten."""
    daemon = stopped(database_15, make_daemon)
    half = daemon.root / "snapshots" / "public.t"
    half.mkdir(mode=0o750, parents=True)
    (half / "state.json").write_text("{}")
    (half / "chunk-0.arrow").write_bytes(b"rows")
    drop_slot(database_15)
    assert accept(daemon, "--from-lsn", str(Lsn(daemon.durable_lsn()))) == EX_OK
    assert not half.exists()


def test_a_lost_slot_is_replaced(make_daemon: MakeDaemon) -> None:
    """What the server gave up is dropped and made again, under the same name."""
    settings = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with Postgres(15, settings) as server:
        database = Database(server, "lost")
        daemon = stopped(database, make_daemon)
        begin = daemon.durable_lsn()
        for number in range(2, 7):
            database.execute(f"INSERT INTO public.t VALUES ({number})")
            database.execute("SELECT pg_switch_wal()")
            database.execute("CHECKPOINT")
        assert server.execute("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
        assert daemon.start().wait() == EX_CONFIG
        assert accept(daemon, "--from-lsn", str(Lsn(begin))) == EX_OK
        assert server.execute("SELECT wal_status FROM pg_replication_slots") == [("reserved",)]
        told, accepted = gap_entries(daemon)
        assert (told["extra"]["reason"], accepted["extra"]["reason"]) == ("slot_lost",) * 2
        goes_on(database, daemon, [1])


def test_what_the_server_cannot_decode_is_skipped(
    database_15: Database, make_daemon: MakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two publications with different lists of columns: refused also after they were made equal."""
    database = database_15
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, v text, w text)")
    name = database.publication
    database.execute(f"CREATE PUBLICATION {name}_2 FOR TABLE public.t (id, v)")
    database.create_slot()
    daemon = make_daemon(database)
    daemon.write_config(source={"publication": [name]})
    daemon.start()
    database.execute("INSERT INTO public.t VALUES (1)")
    daemon.catch_up()
    assert daemon.stop() == EX_OK
    daemon.write_config(source={"publication": [name, f"{name}_2"]})
    assert main(["check", str(daemon.config_path)]) == EX_CONFIG
    told = capsys.readouterr().out
    assert "public.t" in told
    assert f"{name}_2 (id, v)" in told
    database.execute("INSERT INTO public.t VALUES (2)")
    assert daemon.start().wait() == EX_CONFIG
    begin = Lsn(daemon.durable_lsn())
    database.execute(f"ALTER PUBLICATION {name}_2 SET TABLE public.t")
    assert main(["check", str(daemon.config_path)]) == EX_OK
    assert daemon.start().wait() == EX_CONFIG
    told = daemon.log_tail()
    assert "public.t" in told
    assert "gaussdecode slot accept-gap" in told
    assert "--until-lsn now" in told

    assert accept(daemon, "--until-lsn", "0/1", "--from-lsn", str(begin)) == EX_CONFIG
    assert "is not after" in capsys.readouterr().err
    assert accept(daemon, "--until-lsn", "FFFFFF/0", "--from-lsn", str(begin)) == EX_CONFIG
    assert "the server's WAL ends at" in capsys.readouterr().err
    assert accept(daemon, "--until-lsn", "now") == EX_CONFIG
    assert f"--from-lsn {begin}" in capsys.readouterr().err
    assert [entry["extra"]["reason"] for entry in gap_entries(daemon)] == []
    assert accept(daemon, "--until-lsn", "now", "--from-lsn", str(begin)) == EX_OK
    (entry,) = gap_entries(daemon)
    extra = entry["extra"]
    _, confirmed = database.slot_positions()
    assert (extra["reason"], extra["from_lsn"], extra["until_lsn"]) == ("skipped", begin, confirmed)
    goes_on(database, daemon, [1])


def test_one_publication_that_has_every_table_loses_nothing(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """What two publications with different columns stop is read with one of them; then both go on."""
    database = database_15
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, v text)")
    name = database.publication
    database.execute(f"CREATE PUBLICATION {name}_2 FOR TABLE public.t (id)")
    database.create_slot()
    daemon = make_daemon(database)
    daemon.write_config(source={"publication": [name, f"{name}_2"]})
    database.execute("INSERT INTO public.t VALUES (1)")
    assert daemon.start().wait() == EX_CONFIG
    database.execute(f"ALTER PUBLICATION {name}_2 SET TABLE public.t")
    daemon.write_config(source={"publication": [name]})
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == EX_OK
    daemon.write_config(source={"publication": [name, f"{name}_2"]})
    database.execute("INSERT INTO public.t VALUES (2)")
    daemon.start()
    daemon.catch_up()
    assert daemon.stop() == EX_OK
    assert gap_entries(daemon) == []
    oracle.check(daemon.root, database)


def test_a_row_filter_that_fails_is_skipped(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Also after it was replaced by one that does not; no value is said."""
    database = database_15
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    name = database.publication
    database.execute(
        f"DROP PUBLICATION {name}; CREATE PUBLICATION {name} FOR TABLE public.t WHERE (10 / id < 99)"
    )
    database.create_slot()
    daemon = make_daemon(database).start()
    database.execute("INSERT INTO public.t VALUES (1)")
    daemon.catch_up()
    database.execute("INSERT INTO public.t VALUES (0)")
    assert daemon.wait() == EX_CONFIG
    database.execute(f"ALTER PUBLICATION {name} SET TABLE public.t")
    assert daemon.start().wait() == EX_CONFIG
    assert "an expression failed; the server decodes with" in daemon.log_tail()
    begin = Lsn(daemon.durable_lsn())
    assert accept(daemon, "--until-lsn", "now", "--from-lsn", str(begin)) == EX_OK
    goes_on(database, daemon, [1])


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_skip_that_was_cut_off_is_done_again(
    database_15: Database, make_daemon: MakeDaemon, confirmed: bool
) -> None:
    """The slot had moved, or not, when the command was killed: another attempt records the gap."""
    daemon = stopped(database_15, make_daemon)
    begin = Lsn(daemon.durable_lsn())
    database_15.execute("INSERT INTO public.t VALUES (2)")
    end = database_15.wal_end()
    if confirmed:
        database_15.execute(f"SELECT pg_replication_slot_advance('{database_15.slot}', '{end}')")
    assert accept(daemon, "--until-lsn", str(end), "--from-lsn", str(begin)) == EX_OK
    (entry,) = gap_entries(daemon)
    assert (entry["extra"]["from_lsn"], entry["extra"]["until_lsn"]) == (begin, end)
    goes_on(database_15, daemon, [1])
