"""One table's trouble: the others go on, the landing says so, and a snapshot brings it back."""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from kit import landing
from kit.beside import repeating
from kit.daemon import Daemon, wait_until
from kit.poison import POISON, Poisoner
from kit.postgres import Database

from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.land.space import SpaceWait

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gaussdecode", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _prepare(database: Database) -> None:
    database.execute(
        "CREATE TABLE public.sick (id int4 PRIMARY KEY, v text);"
        "CREATE TABLE public.well (id int4 PRIMARY KEY, v text)"
    )
    database.create_slot()
    for table in ("sick", "well"):
        database.execute(f"INSERT INTO public.{table} VALUES (1, 'first')")


def _poison(database: Database) -> None:
    database.execute(
        "INSERT INTO public.sick VALUES (2, 'poison'); INSERT INTO public.well VALUES (2, 'b')"
    )
    database.execute(
        "INSERT INTO public.sick VALUES (3, 'c'); INSERT INTO public.well VALUES (3, 'c')"
    )


def _ids(daemon: Daemon, table: str) -> list[int]:
    landed = landing.read(daemon.root)
    return [of.new["id"] for of in landed.effective() if of.schema.table == ("public", table)]


def _open_quarantines(daemon: Daemon) -> list[str]:
    """Tables that `gaps` says are in quarantine."""
    lines = _command("gaps", "--json", "--unaccepted", str(daemon.root)).stdout.splitlines()
    said = [json.loads(line) for line in lines]
    return [table for of in said if of["kind"] == "quarantine" for table in of["tables"]]


@pytest.mark.parametrize("decoders", [1, 2])
def test_the_table_is_named_with_both_ways_out(
    decoders: int, database_15: Database, make_daemon: MakeDaemon
) -> None:
    """By default the daemon ends, with nothing lost and nothing confirmed after it."""
    _prepare(database_15)
    _poison(database_15)
    proxy = Poisoner(database_15.server.port)
    config = {"decoding": {"parallel-decode-num": decoders}}
    daemon = make_daemon(database_15, dsn=proxy.dsn(database_15), config=config).start()
    assert daemon.wait() == 76
    log = daemon.log.read_text()
    proxy.close()
    for part in ("table public.sick, after 0/", "on-table-error: quarantine", "publication"):
        assert part in log
    assert "poison" not in log


@pytest.mark.parametrize("point", [None, "quarantine_committed", "table_quarantined"])
def test_others_go_on_and_a_snapshot_brings_it_back(
    point: str | None, database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Killed between any two steps, too."""
    _prepare(database_15)
    proxy = Poisoner(database_15.server.port)
    environment = {} if point is None else {"GAUSSDECODE_FAILPOINTS": f"{point}=kill"}
    config = {"landing": {"on-table-error": "quarantine"}}
    daemon = make_daemon(
        database_15, dsn=proxy.dsn(database_15), config=config, environment=environment
    ).start()
    _poison(database_15)
    if point is not None:
        assert daemon.wait() == -9
        daemon.environment.clear()
        daemon.start()
    daemon.catch_up()
    assert _ids(daemon, "well") == [1, 2, 3]
    assert set(_ids(daemon, "sick")) <= {1}
    status = daemon.status() or {}
    assert status["snapshot"]["public.sick"]["state"] == "quarantined"
    listed = _command("gaps", "--json", str(daemon.root))
    assert listed.returncode == 74
    (record, *_) = map(json.loads, listed.stdout.splitlines())
    assert (record["kind"], record["tables"]) == ("quarantine", ["public.sick"])
    assert "poison" not in listed.stdout + daemon.log.read_text()
    proxy.is_poisoning = False
    asked = _command("snapshot", str(daemon.config_path), "--table", "public.sick")
    assert asked.returncode == 0, asked.stderr
    database_15.execute("INSERT INTO public.sick VALUES (4, 'd')")
    daemon.catch_up()
    assert daemon.stop() == 0
    assert sorted(_ids(daemon, "sick")) == [1, 2, 3, 4]
    assert _command("verify", str(daemon.root)).returncode == 0
    proxy.close()


def test_a_renamed_table_comes_back_under_its_name_of_now(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Nothing of it lands under the new name, until a snapshot of that is asked for."""
    _prepare(database_15)
    proxy = Poisoner(database_15.server.port)
    config = {"landing": {"on-table-error": "quarantine"}}
    daemon = make_daemon(database_15, dsn=proxy.dsn(database_15), config=config).start()
    _poison(database_15)
    daemon.catch_up()
    database_15.execute("ALTER TABLE sick RENAME TO ill; INSERT INTO ill VALUES (4, 'd')")
    daemon.catch_up()
    assert _ids(daemon, "ill") == []
    proxy.is_poisoning = False
    asked = _command("snapshot", str(daemon.config_path), "--table", "public.ill")
    assert asked.returncode == 0, asked.stderr
    database_15.execute("INSERT INTO ill VALUES (5, 'e')")
    daemon.catch_up()
    assert (daemon.status() or {})["snapshot"]["public.ill"]["state"] == "done"
    assert daemon.stop() == 0
    assert sorted(_ids(daemon, "ill")) == [1, 2, 3, 4, 5]
    (record, *_) = map(json.loads, _command("gaps", "--json", str(daemon.root)).stdout.splitlines())
    assert (record["kind"], record["is_open"]) == ("quarantine", False)
    proxy.close()


def test_a_healthy_table_that_exchanges_its_name_with_it_goes_on(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """It is not new, and comes whole under the name of now, also after a start."""
    _prepare(database_15)
    proxy = Poisoner(database_15.server.port)
    config = {
        "landing": {"on-table-error": "quarantine"},
        "snapshot": {"mode": "initial", "on-new-table": "ignore"},
    }
    daemon = make_daemon(database_15, dsn=proxy.dsn(database_15), config=config).start()
    daemon.wait_for_state("streaming")
    database_15.execute("CREATE TABLE public.late (id int4 PRIMARY KEY, v text)")
    database_15.execute("INSERT INTO public.late VALUES (1, 'first')")
    asked = _command("snapshot", str(daemon.config_path), "--table", "public.late")
    assert asked.returncode == 0, asked.stderr
    _poison(database_15)
    daemon.catch_up()
    proxy.is_poisoning = False
    database_15.execute(
        "ALTER TABLE sick RENAME TO x; ALTER TABLE late RENAME TO sick; ALTER TABLE x RENAME TO late;"
        "INSERT INTO sick VALUES (2, 'b')"
    )
    daemon.catch_up()

    def records() -> dict[str, dict[str, object]]:
        return SnapshotStore(Disk(Files(daemon.root), SpaceWait(), "test")).ledger()

    wait_until(lambda: records()["public.sick"].get("state") == "done", "rows under the new name")
    assert records()["public.late"]["state"] == "quarantined"
    assert _open_quarantines(daemon) == ["public.late"]  # the snapshot ended the former name alone
    assert daemon.stop() == 0
    daemon.start()
    daemon.wait_for_state("streaming")
    database_15.execute("INSERT INTO sick VALUES (3, 'c'); INSERT INTO late VALUES (4, 'd')")
    daemon.catch_up()
    assert sorted(_ids(daemon, "sick")) == [1, 2, 3]
    assert records()["public.late"]["state"] == "quarantined"
    asked = _command("snapshot", str(daemon.config_path), "--table", "public.late")
    assert asked.returncode == 0, asked.stderr
    assert daemon.stop() == 0
    assert sorted(_ids(daemon, "late")) == [1, 2, 3, 4]
    assert _open_quarantines(daemon) == []
    assert _command("verify", str(daemon.root)).returncode == 0
    proxy.close()


@contextlib.contextmanager
def _more_poison(database: Database) -> Iterator[None]:
    """One transaction after the other that holds the value, until the end of the block."""

    def write(number: int) -> None:
        session.execute(f"INSERT INTO public.sick VALUES ({100 + number}, '{POISON}')")

    with database.connect() as session, repeating(write, 0.02):
        yield


def test_it_stands_still_until_all_of_its_rows_have_landed(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Some rows are refused; asked for while the reason is there, it stops once more and stays so."""
    _prepare(database_15)
    proxy = Poisoner(database_15.server.port)
    config = {"landing": {"on-table-error": "quarantine"}}
    daemon = make_daemon(database_15, dsn=proxy.dsn(database_15), config=config).start()
    _poison(database_15)
    daemon.catch_up()

    def stops() -> int:
        return sum(entry["kind"] == "quarantine" for entry in daemon.entries())

    def is_still() -> bool:
        shown = daemon.get("/metrics")[1].decode()
        (value,) = re.findall(
            r"^gaussdecode_land_quarantined_tables\{.*\} (.*)$", shown, re.MULTILINE
        )
        return float(value) == 1

    ask = ("snapshot", str(daemon.config_path), "--table", "public.sick")
    assert is_still()
    refused = _command(*ask, "--where", "id > 1")
    assert refused.returncode == 78
    assert "public.sick" in refused.stderr
    assert "without --where" in refused.stderr
    files = Files(daemon.root)
    store = SnapshotStore(Disk(files, SpaceWait(), "test"))
    path = store.ask({"table": "public.sick", "where": "id > 1"})  # from before it stopped
    wait_until(lambda: not store.is_asked(path), "an answer")
    files.close()
    assert "without --where" in daemon.log.read_text()
    assert is_still()

    with _more_poison(database_15):
        failed = _command(*ask)
    assert failed.returncode == 69
    assert "after 0/" in failed.stderr
    daemon.catch_up()
    assert stops() == 2, "asked for once, it stops once more"
    assert is_still()

    proxy.is_poisoning = False
    assert _command(*ask).returncode == 0
    assert not is_still()
    daemon.catch_up()
    assert daemon.stop() == 0
    source = database_15.execute("SELECT id FROM public.sick ORDER BY id")
    assert sorted(set(_ids(daemon, "sick"))) == [id_ for (id_,) in source]
    proxy.close()


@pytest.mark.parametrize("skips_empty", [False, True])
def test_what_landed_is_recognised_without_the_table_and_with_it_again(
    skips_empty: bool, database_15: Database, make_daemon: MakeDaemon
) -> None:
    """A server that heard of no confirmation sends all again: before, in and after quarantine."""
    _prepare(database_15)
    proxy = Poisoner(database_15.server.port)
    proxy.is_forgetting = True
    config = {
        "landing": {"on-table-error": "quarantine"},
        "decoding": {"skip-empty-xacts": skips_empty},
    }
    daemon = make_daemon(database_15, dsn=proxy.dsn(database_15), config=config).start()
    daemon.catch_up()
    assert (_ids(daemon, "sick"), _ids(daemon, "well")) == ([1], [1])
    _poison(database_15)
    database_15.execute("INSERT INTO public.sick VALUES (5, 'e')")
    daemon.catch_up()
    assert (_ids(daemon, "sick"), _ids(daemon, "well")) == ([1], [1, 2, 3])
    proxy.is_poisoning = False
    asked = _command("snapshot", str(daemon.config_path), "--table", "public.sick")
    assert asked.returncode == 0, asked.stderr
    daemon.catch_up()
    assert daemon.stop() == 0
    assert sorted(_ids(daemon, "sick")) == [1, 2, 3, 5]
    assert daemon.log.read_text().count('"resent_compared"') >= 2
    assert _command("verify", str(daemon.root)).returncode == 0
    proxy.close()


def test_a_row_that_landed_may_come_again_damaged(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """All that is sent again is compared first, without the table; then it is said to have stopped."""
    _prepare(database_15)
    proxy = Poisoner(database_15.server.port)
    proxy.is_forgetting, proxy.is_poisoning = True, False
    config = {"landing": {"on-table-error": "quarantine"}}
    daemon = make_daemon(database_15, dsn=proxy.dsn(database_15), config=config).start()
    _poison(database_15)
    daemon.catch_up()
    daemon.kill9()
    proxy.is_poisoning = True
    database_15.execute("INSERT INTO public.sick VALUES (4, 'd')")
    database_15.execute("INSERT INTO public.well VALUES (4, 'd')")
    daemon.start().catch_up()
    assert (_ids(daemon, "sick"), _ids(daemon, "well")) == ([1, 2, 3], [1, 2, 3, 4])
    events = [entry["kind"] for entry in daemon.entries()]
    assert events.count("quarantine") == 1
    status = daemon.status() or {}
    assert status["snapshot"]["public.sick"]["state"] == "quarantined"
    log = daemon.log.read_text()
    assert log.index('"resent_compared"') < log.index('"table_quarantined"')
    proxy.is_poisoning = False
    asked = _command("snapshot", str(daemon.config_path), "--table", "public.sick")
    assert asked.returncode == 0, asked.stderr
    daemon.catch_up()
    assert daemon.stop() == 0
    assert sorted(_ids(daemon, "sick")) == [1, 2, 3, 4]
    assert _command("verify", str(daemon.root)).returncode == 0
    proxy.close()


def test_a_table_is_known_by_its_title(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A name with a dot in it: quarantine and snapshot speak of the same table."""
    database_15.execute('CREATE TABLE public."si.ck" (id int4 PRIMARY KEY, v text)')
    database_15.create_slot()
    proxy = Poisoner(database_15.server.port)
    config = {"landing": {"on-table-error": "quarantine"}}
    daemon = make_daemon(database_15, dsn=proxy.dsn(database_15), config=config).start()
    database_15.execute("""INSERT INTO public."si.ck" VALUES (2, 'poison')""")
    daemon.catch_up()
    title = 'public."si.ck"'
    status = daemon.status() or {}
    assert status["snapshot"][title]["state"] == "quarantined"
    proxy.is_poisoning = False
    asked = _command("snapshot", str(daemon.config_path), "--table", title)
    assert asked.returncode == 0, asked.stderr
    daemon.catch_up()
    assert daemon.stop() == 0
    assert _ids(daemon, "si.ck") == [2]
    proxy.close()


@pytest.mark.parametrize("decoders", [1, 2])
def test_row_above_the_limit_is_its_tables_trouble(
    decoders: int, database_15: Database, make_daemon: MakeDaemon
) -> None:
    """The error names table, column, position and size; in quarantine the others go on."""
    _prepare(database_15)
    config = {
        "source": {"max-row-bytes": "2MiB"},
        "decoding": {"parallel-decode-num": decoders},
        "landing": {"on-table-error": "quarantine"},
    }
    daemon = make_daemon(database_15, config=config).start()
    daemon.catch_up()
    database_15.execute(
        "INSERT INTO public.sick VALUES (2, repeat('z', 3 << 20));"
        "INSERT INTO public.well VALUES (2, 'b')"
    )
    daemon.catch_up()
    assert _ids(daemon, "well") == [1, 2]
    assert _ids(daemon, "sick") == [1]
    found = json.loads(_command("gaps", "--json", str(daemon.root)).stdout.splitlines()[0])
    assert found["tables"] == ["public.sick"]
    size = 3 << 20
    pattern = (
        rf"a row of {size + 19} bytes, near 0/[0-9A-F]+, in transaction [0-9]+, of which {size} are "
        r"in column v; source\.max-row-bytes allows 2097152: raise it"
    )
    assert re.search(pattern, json.dumps(found)), found
    assert "zzz" not in daemon.log.read_text()
    assert daemon.stop() == 0
