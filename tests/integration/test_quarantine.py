"""One table's trouble: the others go on, the landing says so, and a snapshot brings it back."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from kit import landing
from kit.daemon import Daemon
from kit.postgres import Database
from kit.proxy import Proxy

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_VALUE = b"poison"
_SENT = b"t\0\0\0\x06" + _VALUE
_DAMAGED = b"?\0\0\0\x06" + _VALUE


class Poisoner(Proxy):
    """Damages the row that holds the value, in its kind and not in its length."""

    is_poisoning = True

    def _spoil(self, data: bytes, *others: object) -> bytes:
        return data.replace(_SENT, _DAMAGED) if self.is_poisoning else data


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
    return [of.new["id"] for of in landed.settled() if of.schema.table == ("public", table)]


@pytest.mark.parametrize("decoders", [1, 2])
def test_the_table_is_named_with_both_ways_out(
    decoders: int, database_15: Database, make_daemon: MakeDaemon
) -> None:
    """By default the daemon ends, with nothing lost and nothing confirmed behind it."""
    _prepare(database_15)
    _poison(database_15)
    proxy = Poisoner(database_15.server.port)
    dsn = database_15.dsn.replace(f"port={database_15.server.port}", f"port={proxy.port}")
    config = {"decoding": {"parallel-decode-num": decoders}}
    daemon = make_daemon(database_15, dsn=dsn, config=config).start()
    assert daemon.wait() == 76
    log = daemon.log.read_text()
    proxy.close()
    for part in ("table public.sick, behind 0/", "on-table-error: quarantine", "publication"):
        assert part in log
    assert "poison" not in log


@pytest.mark.parametrize("point", [None, "quarantine_published", "table_quarantined"])
def test_others_go_on_and_a_snapshot_brings_it_back(
    point: str | None, database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Killed between any two steps, too."""
    _prepare(database_15)
    proxy = Poisoner(database_15.server.port)
    dsn = database_15.dsn.replace(f"port={database_15.server.port}", f"port={proxy.port}")
    environment = {} if point is None else {"GAUSSDECODE_FAILPOINTS": f"{point}=kill"}
    config = {"landing": {"on-table-error": "quarantine"}}
    daemon = make_daemon(database_15, dsn=dsn, config=config, environment=environment).start()
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
