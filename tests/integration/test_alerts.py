"""Every alert is provoked in a running daemon, its runbook followed, and it resolves.

A real Prometheus evaluates the installed rules with shorter patience and smaller bounds
(`kit.rules.hurried`). What the runbooks of docs/alerts.md say is done with the commands
they name; for systemctl and journalctl, which are not everywhere, stand the supervisor of
the kit and the daemon's log.
"""

import contextlib
import dataclasses
import math
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest
from kit.beside import repeating
from kit.certificates import sign
from kit.daemon import Daemon, wait_until
from kit.gausscluster import GaussCluster
from kit.gaussdaemon import GaussDatabase, lands
from kit.gaussprofile import V6_0_0
from kit.gaussserver import GaussServer
from kit.gaussseveral import several
from kit.landrun import Landing
from kit.poison import POISON, Poisoner
from kit.postgres import Database, Postgres, make_certificates
from kit.prometheus import Prometheus
from kit.rules import hurried, installed
from kit.served import Served, unpack_landing
from kit.simdisk import SimFiles
from kit.systemd import Supervised, Unit

from gaussdecode.cli import main
from gaussdecode.daemon.housekeeping import Housekeeper
from gaussdecode.daemon.serveprocess import monitor
from gaussdecode.daemon.status.http import MonitoringServer
from gaussdecode.demo.ports import free_port
from gaussdecode.errors import EX_UNAVAILABLE
from gaussdecode.metrics.exposition import Exposition, Snapshot
from gaussdecode.serve.kept import KeptSlot
from gaussdecode.settings.landing_sections import LandingConfig
from gaussdecode.settings.sections import MonitoringConfig
from gaussdecode.settings.types import Address

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
Test = Callable[..., None]

ALERTS = Path(__file__).parents[2] / "docs" / "alerts.md"
MIB = 2**20
# By what is installed, in seconds; long enough for two starts on a busy machine.
LOOK_BACK: Final = {300.0: 5.0, 600.0: 6.0, 900.0: 8.0, 1800.0: 30.0, 3600.0: 8.0, 86400.0: 600.0}
BOUNDS: Final = {
    "GaussdecodeLagSeconds": {"> 600": "> 5"},
    "GaussdecodePreparedLong": {"> 3600": "> 2"},
    "GaussdecodeTurnsHeld": {"> 300": "> 2"},
    "GaussdecodeLagBytes": {"> 10e9": "> 2e6"},
    "GaussdecodeRetainedWalGrowing": {"> 4e9": "> 24e6", "> 2e9": "> 12e6"},
    "GaussdecodeRestarts": {"> 2": "> 1"},
    "GaussdecodeWraparound": {"> 500e6": "> 50"},
    "GaussdecodeReconnects": {"> 5": "> 3"},
    "GaussdecodeGuardBlind": {"> 5": "> 2"},
}
PROVOKED: Final[set[str]] = set()
PROVOKED_BY_CLIENTS: Final = (
    "GaussdecodeClientBehind", "GaussdecodeVirtualSlotLost", "GaussdecodeVirtualSlotNearItsEnd",
)  # fmt: skip


def provokes(*names: str) -> Callable[[Test], Test]:
    """Say which alerts a test provokes."""
    PROVOKED.update(names)
    return lambda test: test


def runbook(name: str) -> str:
    """The section of an alert in the operations guide."""
    text = ALERTS.read_text()
    section = re.search(rf"\n### {name}\n(.*?)(?=\n##)", text, re.DOTALL)
    assert section is not None
    return " ".join(section[1].split())


class Watch(Prometheus):
    """A Prometheus with the rules in a hurry."""

    def __init__(self, directory: Path, *ports: int) -> None:
        directory.mkdir()
        rules = hurried(lambda wanted: min(wanted, 1.0), LOOK_BACK.__getitem__, BOUNDS)
        super().__init__(directory, ports, rules)

    def fires(self, *names: str) -> None:
        """Wait until all of these fire."""
        assert set(names) <= PROVOKED
        wait_until(lambda: set(names) <= self.firing(), f"{names} fire")

    def resolves(self, *names: str) -> None:
        """Wait until none of these fires."""
        wait_until(lambda: not set(names) & self.firing(), f"{names} resolve")


@pytest.fixture
def watch(tmp_path: Path) -> Callable[[Daemon], Watch]:
    """Make the Prometheus of a daemon."""
    return lambda daemon: Watch(tmp_path / "prometheus", daemon.port)


@pytest.fixture
def supervise(tmp_path: Path) -> Callable[[Daemon], Supervised]:
    """Make the supervisor of a daemon, which does not wait for long."""
    unit = dataclasses.replace(Unit.read(), restart_seconds=0.2)
    return lambda daemon: Supervised(daemon, tmp_path, unit)


MakeWatch = Callable[[Daemon], Watch]
Supervise = Callable[[Daemon], Supervised]


def prepared(database: Database) -> Database:
    """A database with a table and a slot."""
    database.execute("CREATE TABLE public.t (id int8 PRIMARY KEY, n numeric(12,2), v text)")
    database.create_slot()
    return database


def test_every_alert_is_provoked() -> None:
    """No alert of the installed rules is left out."""
    assert {rule["alert"] for rule in installed()} == PROVOKED


@provokes("GaussdecodePaused", "GaussdecodeServeAway")
def test_a_pause(database_15: Database, make_daemon: MakeDaemon, watch: MakeWatch) -> None:
    """An operator pauses the landing, and ends it; meanwhile another program has the port for clients."""
    taken = socket.create_server(("127.0.0.1", free_port()))
    serve = {"in-daemon": True, "listen": f"127.0.0.1:{taken.getsockname()[1]}"}
    daemon = make_daemon(prepared(database_15), config={"serve": serve})
    with daemon, watch(daemon) as prometheus:
        daemon.wait_for_state("streaming")
        assert main(["ctl", str(daemon.config_path), "pause"]) == 0
        prometheus.fires("GaussdecodePaused", "GaussdecodeServeAway")
        taken.close()
        assert main(["ctl", str(daemon.config_path), "resume"]) == 0
        prometheus.resolves("GaussdecodePaused", "GaussdecodeServeAway")
        assert daemon.stop() == 0


@provokes("GaussdecodeTurnsHeld")
def test_a_transaction_that_nobody_ends(
    servers: Callable[[int], Postgres], tmp_path: Path, watch: MakeWatch
) -> None:
    """Prepared on a data node: the mark waits for it, and nothing lands of any of them."""
    with GaussCluster(("dn1", "dn2"), postgres=servers(15)) as cluster:
        tables = cluster.create_table("public", "t", {"id": "int8"}, key=["id"])
        with several(cluster, tmp_path) as daemon, watch(daemon) as prometheus:
            daemon.wait_for_state("streaming")
            held = cluster.begin()
            for name, table in tables.items():
                held.on(name).insert(table, {"id": "1"})
            held.prepare()
            other = cluster.begin()
            other.on("dn1").insert(tables["dn1"], {"id": "2"})
            other.commit()
            prometheus.fires("GaussdecodeTurnsHeld")
            told = daemon.get("/metrics")[1].decode()
            assert re.search(r'turn_held_seconds\{[^}]*source="dn2"\} [1-9]', told)
            held.rollback()
            prometheus.resolves("GaussdecodeTurnsHeld")
            daemon.catch_up_csn()
            assert daemon.stop() == 0


@provokes(
    "GaussdecodeDown",
    "GaussdecodeMisfitValues",
    "GaussdecodeNotStreamed",
    "GaussdecodePreparedLong",
    "GaussdecodeQuarantinedTables",
    "GaussdecodeRestarts",
)
def test_daemon_that_ends(
    database_15: Database,
    make_daemon: MakeDaemon,
    supervise: Supervise,
    watch: MakeWatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A wrong configuration, killed processes, values that do not fit, a damaged row, a message."""
    proxy = Poisoner(database_15.server.port)
    config = {
        "landing": {"on-table-error": "quarantine"},
        "source": {"streaming": "on", "two-phase": True},
    }
    database_15.execute(f'ALTER DATABASE "{database_15.name}" SET logical_decoding_work_mem = 64')
    daemon = make_daemon(prepared(database_15), dsn=proxy.dsn(database_15), config=config)
    with proxy, supervise(daemon) as supervised, watch(daemon) as prometheus:
        daemon.wait_for_state("streaming")
        database_15.execute("CREATE TABLE public.sick (v text)")
        database_15.execute(f"INSERT INTO public.sick VALUES ('{POISON}')")
        prometheus.fires("GaussdecodeQuarantinedTables")
        assert main(["gaps", str(daemon.root)]) == os.EX_IOERR
        assert "public.sick" in capsys.readouterr().out
        proxy.is_poisoning = False
        assert main(["snapshot", str(daemon.config_path), "--table", "public.sick"]) == 0
        prometheus.resolves("GaussdecodeQuarantinedTables")
        capsys.readouterr()
        with database_15.connect() as session, session.transaction():
            session.execute("SELECT pg_logical_emit_message(true, 'kit', 'whose am I')")
            session.execute("SAVEPOINT s")
            session.execute("INSERT INTO public.t SELECT g, g FROM generate_series(1000, 4000) g")
            session.execute("ROLLBACK TO SAVEPOINT s")
        prometheus.fires("GaussdecodeNotStreamed")
        daemon.wait_while_running(
            lambda: any(
                "streaming_fallback" in line and "savepoint" in line
                for line in daemon.log.read_text().splitlines()
            ),
            "it is asked for whole",
        )
        with database_15.connect() as session:
            session.execute("BEGIN")
            session.execute("INSERT INTO public.t VALUES (7, 7)")
            session.execute("PREPARE TRANSACTION 'forgotten'")
        prometheus.fires("GaussdecodePreparedLong")
        status = daemon.status()
        assert status is not None
        (waiting,) = status["prepared_txns"]
        assert (waiting["gid"], waiting["rows"]) == ("forgotten", 1)
        database_15.execute("ROLLBACK PREPARED 'forgotten'")
        prometheus.resolves("GaussdecodePreparedLong")
        database_15.execute("INSERT INTO public.t VALUES (1, 'NaN')")
        prometheus.fires("GaussdecodeMisfitValues")
        daemon.catch_up()
        kept = [
            row["gd_raw"]
            for path in daemon.root.glob("data/public.t/**/[!.]*.parquet")
            for row in pq.read_table(path, partitioning=None).to_pylist()
            if row["gd_raw"]
        ]
        assert kept == [[("n", "NaN")]]
        for number in range(1, 3):
            os.kill(daemon.children()["reader"], signal.SIGKILL)
            wait_until(lambda number=number: len(supervised.ends) == number, "the end")  # type: ignore[misc]
            seen = f"changes(gaussdecode_daemon_start_time_seconds[5m]) == {number}"
            wait_until(lambda seen=seen: bool(prometheus.query(seen)), "the start is scraped")  # type: ignore[misc]
            daemon.wait_for_state("streaming")
        prometheus.fires("GaussdecodeRestarts")
        assert {end.status for end in supervised.ends} == {os.EX_SOFTWARE}
        assert "was killed by signal 9" in daemon.log.read_text()
        prometheus.resolves("GaussdecodeMisfitValues", "GaussdecodeNotStreamed")
        daemon.config_path.write_text(f"{daemon.config_path.read_text()}\nslots: typo\n")
        supervised.restart()
        prometheus.fires("GaussdecodeDown")
        wait_until(lambda: supervised.ends[-1].status == os.EX_CONFIG, "it stays down")
        assert "slots" in daemon.log_tail(1)
        assert main(["gaps", "--unaccepted", str(daemon.root)]) == 0
        assert "nothing is missing" in capsys.readouterr().out
        daemon.write_config()
        supervised.start()
        prometheus.resolves("GaussdecodeDown", "GaussdecodeRestarts")
        assert supervised.stop() == 0


@contextlib.contextmanager
def another_consumer(database: Database) -> Iterator[None]:
    """Somebody else reads the slot."""
    command = [
        str(database.server.program("pg_recvlogical")), "-d", database.dsn, "-S", database.slot,
        "--start", "--no-loop", "-f", "/dev/null", "-s", "0", "-F", "0", "-o", "proto_version=1",
        "-o", f"publication_names={database.publication}",
    ]  # fmt: skip
    with subprocess.Popen(command) as process:  # what it says is shown where the test fails
        active = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{database.slot}'"
        wait_until(lambda: database.execute(active) == [(True,)], "the slot is taken")
        try:
            yield
        finally:
            process.kill()


@provokes(
    "GaussdecodeNotStreaming",
    "GaussdecodeReconnects",
    "GaussdecodeGuardBlind",
    "GaussdecodeCertificateEnds",
)
def test_daemon_that_is_kept_out(
    database_15: Database,
    make_daemon: MakeDaemon,
    watch: MakeWatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The slot is taken, streams are ended, the role may open no more connections; its certificate ends soon."""
    role = f"role_{database_15.name}"
    database = prepared(database_15)
    database.execute(f"CREATE ROLE {role} LOGIN REPLICATION")
    dsn = database.dsn.replace("user=postgres", f"user={role}")
    make_certificates(tmp_path)
    certificate = sign(tmp_path, "client", end_days=13)
    dsn = f"{dsn} sslmode=disable sslcert={certificate} sslkey={certificate.with_suffix('.key')}"
    daemon = make_daemon(database, dsn=dsn, config={"guard": {"interval": "1s"}})
    daemon.begin()
    with another_consumer(database), daemon, watch(daemon) as prometheus:
        prometheus.fires("GaussdecodeNotStreaming", "GaussdecodeCertificateEnds")
        sign(tmp_path, "client", end_days=15)
        prometheus.resolves("GaussdecodeCertificateEnds")
        # While it asks for the slot once more, it says for a moment that it streams.
        status = ["status", str(daemon.config_path)]
        wait_until(lambda: main(status) == os.EX_UNAVAILABLE, "the status says so")
        assert "is active for" in capsys.readouterr().out
        assert main(["check", str(daemon.config_path)]) == 0
        assert "in use by process" in capsys.readouterr().out
        database.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
        )
        prometheus.resolves("GaussdecodeNotStreaming")

        def broken_off() -> int:
            return daemon.log.read_text().count("session_retrying")

        end_stream = (
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            f"WHERE slot_name = '{database.slot}'"
        )
        for _ in range(5):
            daemon.wait_for_state("streaming")
            before = broken_off()
            # The state may be that of a moment ago, and nobody may read the slot now.
            wait_until(lambda: database.execute(end_stream) == [(True,)], "a stream is ended")
            wait_until(lambda before=before: broken_off() > before, "the stream breaks off")  # type: ignore[misc]
        prometheus.fires("GaussdecodeReconnects")
        reasons = [
            line for line in daemon.log.read_text().splitlines() if "session_retrying" in line
        ]
        assert any("terminat" in line for line in reasons)
        daemon.wait_for_state("streaming")

        database.execute(f"ALTER ROLE {role} CONNECTION LIMIT 0")
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE usename = '{role}' AND backend_type = 'client backend'"
        )
        prometheus.fires("GaussdecodeGuardBlind")
        assert daemon.log.read_text().count("guard_blind") == 1
        capsys.readouterr()
        assert main(["status", str(daemon.config_path)]) == 0
        assert "too many connections for role" in capsys.readouterr().err
        database.execute(f"ALTER ROLE {role} CONNECTION LIMIT 5")
        prometheus.resolves("GaussdecodeGuardBlind", "GaussdecodeReconnects")
        assert daemon.stop() == 0
    database.execute(f"DROP ROLE {role}")


@contextlib.contextmanager
def writing(database: Database) -> Iterator[None]:
    """Rows without an end, about a third of a megabyte of text every 0.1 seconds."""

    def write(number: int) -> None:
        session.execute(
            "INSERT INTO public.t SELECT g, 1, repeat(md5(g::text), 100) "
            f"FROM generate_series({number * 100}, {number * 100 + 99}) g"
        )

    with database.connect() as session, repeating(write, 0.1):
        yield


@provokes(
    "GaussdecodeLagSeconds",
    "GaussdecodeLagBytes",
    "GaussdecodeNoProgress",
    "GaussdecodeQueueFull",
)
def test_daemon_that_falls_behind(
    database_15: Database,
    make_daemon: MakeDaemon,
    watch: MakeWatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Decoders that are stopped; status names them, and nothing is lost when they go on."""
    database = prepared(database_15)
    daemon = make_daemon(database, config={"guard": {"interval": "1s"}}).start()
    behind = (
        "GaussdecodeLagSeconds",
        "GaussdecodeLagBytes",
        "GaussdecodeNoProgress",
        "GaussdecodeQueueFull",
    )
    with watch(daemon) as prometheus:
        daemon.wait_for_state("streaming")
        with writing(database):
            decoders = [pid for name, pid in daemon.children().items() if "worker" in name]
            for pid in decoders:
                os.kill(pid, signal.SIGSTOP)
            prometheus.fires(*behind)
            late = ["status", "--max-lag", "5", str(daemon.config_path)]
            assert main(late) == os.EX_UNAVAILABLE
            assert "decode" in capsys.readouterr().out
            limit = daemon.record()["limit"]
            assert limit["stage"] == "decode"
            assert limit["setting"] == f"kill -CONT {decoders[0]}"
            for pid in decoders:
                os.kill(pid, signal.SIGCONT)
        prometheus.resolves(*behind)
        daemon.catch_up()
        assert daemon.stop() == 0


@pytest.fixture
def limited() -> Iterator[Database]:
    """A database on a server that keeps little WAL for a slot."""
    with Postgres(15, {"min_wal_size": "32MB", "max_wal_size": "64MB"}) as server:
        server.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '256MB'")
        server.execute("SELECT pg_reload_conf()")
        yield prepared(Database(server, "limited"))


def write_wal(database: Database, mib: int) -> None:
    """Write WAL that no slot sends as a row."""
    for _ in range(mib):
        database.execute(f"SELECT pg_logical_emit_message(false, 'x', repeat('x', {MIB}))")


@provokes(
    "GaussdecodeRetainedWalGrowing", "GaussdecodeSlotNearInvalidation", "GaussdecodeWraparound"
)
def test_slot_that_retains_much(
    limited: Database, make_daemon: MakeDaemon, watch: MakeWatch
) -> None:
    """An old transaction holds WAL back: the limit is raised, the transaction found and ended."""
    daemon = make_daemon(limited, config={"guard": {"interval": "1s"}}).start()
    daemon.wait_for_state("streaming")
    with watch(daemon) as prometheus, contextlib.closing(limited.connect()) as forgotten:
        forgotten.autocommit = False
        forgotten.execute("INSERT INTO public.t VALUES (-1)")
        write_wal(limited, 90)  # a third of what may be kept

        def seen() -> bool:
            time.sleep(0.2)  # slowly, so that the slot outlives it
            write_wal(limited, 1)
            for _ in range(10):
                limited.execute("SELECT pg_catalog.txid_current()")
            wanted = {
                "GaussdecodeRetainedWalGrowing",
                "GaussdecodeSlotNearInvalidation",
                "GaussdecodeWraparound",
            }
            return wanted <= prometheus.firing()

        wait_until(seen, "the slot comes nearer to its end")
        limited.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '8GB'")
        limited.execute("SELECT pg_reload_conf()")
        prometheus.resolves("GaussdecodeSlotNearInvalidation")

        server = daemon.record()["server"]
        ages = re.search(r"`(SELECT slot_name, age.*?)`", runbook("GaussdecodeWraparound"))
        assert ages is not None
        ((slot, _, age),) = limited.execute(ages[1])
        assert (slot, server["held_by"]) == (limited.slot, "transaction")
        assert 50 < server["slot"]["catalog_xmin_age"] <= age
        for alert in ("GaussdecodeRetainedWalGrowing", "GaussdecodeWraparound"):
            query = re.search(r"`(SELECT pid, xact_start.*?)`", runbook(alert))
            assert query is not None
            oldest = limited.execute(query[1])[0]
            assert oldest[2] == "INSERT INTO public.t VALUES (-1)"
        limited.execute(f"SELECT pg_terminate_backend({oldest[0]})")
        limited.execute("CHECKPOINT")  # tells the slot at once that the transaction is over
        prometheus.resolves("GaussdecodeRetainedWalGrowing", "GaussdecodeWraparound")
        limited.execute("VACUUM (FREEZE)")
    daemon.catch_up()
    assert daemon.stop() == 0


@provokes("GaussdecodeSlotLost", "GaussdecodeGap")
def test_slot_that_is_lost(
    limited: Database,
    make_daemon: MakeDaemon,
    supervise: Supervise,
    watch: MakeWatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The loss is scraped before the daemon stays down; a new slot and landing go on."""
    daemon = make_daemon(limited, config={"source": {"messages": False}})
    with supervise(daemon) as supervised, watch(daemon) as prometheus:
        daemon.wait_for_state("streaming")
        limited.execute("INSERT INTO public.t VALUES (1)")
        daemon.catch_up()
        wait_until(lambda: bool(prometheus.query("gaussdecode_land_durable_lsn")), "a scrape")
        reader = daemon.children()["reader"]
        os.kill(reader, signal.SIGSTOP)

        def is_lost() -> bool:
            write_wal(limited, 32)
            limited.execute("CHECKPOINT")
            return limited.execute("SELECT wal_status FROM pg_replication_slots") == [("lost",)]

        wait_until(is_lost, "the slot is lost")
        os.kill(reader, signal.SIGCONT)
        prometheus.fires("GaussdecodeSlotLost", "GaussdecodeGap")
        wait_until(lambda: bool(supervised.ends), "the daemon stays down")
        assert supervised.ends[-1].status == os.EX_CONFIG
        capsys.readouterr()
        assert main(["gaps", str(daemon.root)]) == os.EX_IOERR
        assert "is lost" in capsys.readouterr().out

        limited.execute(f"SELECT pg_drop_replication_slot('{limited.slot}')")
        daemon.write_config_value("slot", "second")
        daemon.write_config(landing={"root": str(daemon.root.with_name("second"))})
        assert main(["slot", "create", str(daemon.config_path)]) == 0
        supervised.start()
        daemon.wait_for_state("streaming")
        prometheus.resolves("GaussdecodeSlotLost", "GaussdecodeGap")
        assert supervised.stop() == 0


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[Callable[[str], None] | None]:
    """Mount a small file system, where we may; give what changes its size."""
    directory.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=0750", "tmpfs", str(directory)]
    is_mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0

    def resize(size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(directory)], check=True)

    try:
        yield resize if is_mounted else None
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(directory)], check=True)


@provokes("GaussdecodeDiskFull", "GaussdecodeDiskFillingUp", "GaussdecodeMirrorAway")
def test_disk_that_fills_up(
    database_15: Database, make_daemon: MakeDaemon, watch: MakeWatch, tmp_path: Path
) -> None:
    """The mirror is away, the landing's disk full; both come back, and all goes on by itself."""
    database = prepared(database_15)
    store, away = tmp_path / "mirror", tmp_path / "away"
    mirror = {"url": f"file://{store}", "confirm": "local"}
    config = {"guard": {"interval": "1s"}, "landing": {"mirror": mirror}}
    daemon = make_daemon(database, config=config)
    with small_disk(daemon.root) as resize:
        if resize is None:  # not as root: a disk that says so until the next start
            daemon.environment["GAUSSDECODE_FAILPOINTS"] = "write:25+=ENOSPC"
        ballast = (daemon.root if resize else daemon.root.parent) / ".ballast"
        with daemon, watch(daemon) as prometheus:
            daemon.wait_for_state("streaming")
            wait_until((store / "layout.json").exists, "the mirror has begun")
            store.rename(away)
            store.touch()
            daemon.mark()
            prometheus.fires("GaussdecodeMirrorAway")
            assert main(["check", str(daemon.config_path)]) == os.EX_CONFIG
            store.unlink()
            away.rename(store)
            prometheus.resolves("GaussdecodeMirrorAway")

            def seen() -> bool:
                with ballast.open("ab") as file:
                    file.write(os.urandom(MIB // 10 if resize else 16 * MIB))
                return "GaussdecodeDiskFillingUp" in prometheus.firing()

            wait_until(seen, "the disk fills up")
            with contextlib.suppress(OSError), ballast.open("ab") as file:
                while resize:
                    file.write(os.urandom(65536))
                    file.flush()
            with writing(database):
                prometheus.fires("GaussdecodeDiskFull")
            assert daemon.get("/readyz")[0] != 200
            if resize:
                resize("2g")
            else:
                ballast.unlink()
                assert daemon.stop() == 0
                daemon.environment.clear()
                daemon.start()
            prometheus.resolves("GaussdecodeDiskFull", "GaussdecodeDiskFillingUp")
            daemon.catch_up()
            assert daemon.stop() == 0


@provokes("GaussdecodeSpoolFull")
def test_transaction_that_is_too_large(
    database_15: Database,
    make_daemon: MakeDaemon,
    watch: MakeWatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The bound of the spool is reached; it is named, raised, and the transaction lands."""
    database = prepared(database_15)
    config = {"decoding": {"max-txn-in-memory": 1}, "landing": {"spool-bytes": "1MiB"}}
    daemon = make_daemon(database, config=config)
    with daemon, watch(daemon) as prometheus:
        daemon.wait_for_state("streaming")
        filler = "SELECT g, g, repeat('x', 200) FROM generate_series(1, 40000) g"
        database.execute(f"INSERT INTO public.t {filler}")
        prometheus.fires("GaussdecodeSpoolFull")
        assert "spool_full" in daemon.log.read_text()
        assert main(["status", str(daemon.config_path)]) == EX_UNAVAILABLE
        assert "landing.spool-bytes (1MiB)" in capsys.readouterr().err
        assert daemon.stop() == 0
        daemon.write_config(landing={"spool-bytes": "none"})
        daemon.start()
        prometheus.resolves("GaussdecodeSpoolFull")
        daemon.catch_up()
        assert daemon.stop() == 0


@provokes("GaussdecodeSnapshotFailed", "GaussdecodeSuspectTransactions")
def test_transaction_that_may_be_incomplete(
    make_gauss: Callable[..., GaussServer],
    tmp_path: Path,
    watch: MakeWatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """GaussDB says that rows of a transaction with DDL are lost: the gaps list names it.

    The tables are to be read again, and one of them may not be read.
    """
    gauss = make_gauss(V6_0_0)
    database = GaussDatabase(gauss)
    columns = {"id": "int8", "v": "text"}
    table = gauss.store.create_table("public", "orders", columns, key=["id"])
    gauss.forbidden.add(("public", "orders"))
    daemon = lands(database, tmp_path / "gauss", parallel_decode_num=2)
    daemon.write_config(landing={"on-suspect": "snapshot"})
    with daemon:
        daemon.wait_for_state("streaming")
        with watch(daemon) as prometheus:
            wait_until(lambda: bool(prometheus.query("gaussdecode_land_durable_lsn")), "a scrape")
            transaction = gauss.store.begin()
            transaction.insert(table, {"id": "2", "v": "kept"})
            transaction.ddl()
            transaction.insert(table, {"id": "3", "v": "lost"})
            transaction.commit()
            daemon.catch_up()
            prometheus.fires("GaussdecodeSuspectTransactions", "GaussdecodeSnapshotFailed")
            assert "may not read table public.orders" in daemon.log.read_text()
            assert main(["gaps", str(daemon.root)]) == os.EX_IOERR
            listed = capsys.readouterr().out
            assert "suspect" in listed
            assert "public.orders" in listed, "the server's WAL tells which table"
            gauss.forbidden.clear()
            assert main(["snapshot", str(daemon.config_path), "--table", "public.orders"]) == 0
            prometheus.resolves("GaussdecodeSuspectTransactions", "GaussdecodeSnapshotFailed")
        assert daemon.stop() == 0


@provokes(*PROVOKED_BY_CLIENTS)
def test_clients_that_are_behind(tmp_path: Path) -> None:
    """One never confirms, one needs entries that retention removed, and one holds back what retention would remove.

    The first two are clients of a server; what the third one holds is counted as a daemon counts it.
    """
    root = unpack_landing(tmp_path)
    files = SimFiles()
    Landing(files, transactions=15).run()
    needed = [KeptSlot("holds", 1)]
    settings = LandingConfig(root=root, retention=0.0)
    log = Landing(files, "second").open()
    keeper = Housekeeper(log, settings, print, slots=lambda: needed)
    keeper.work()
    limit = 1.1 * (keeper.held_bytes or math.nan)

    def held() -> Snapshot:
        return {
            "gaussdecode_land_virtual_slot_held_bytes": {(): keeper.held_bytes or 0},
            "gaussdecode_land_virtual_slot_limit_bytes": {(): limit},
        }

    keeps = MonitoringServer(
        Address("127.0.0.1", 0), render_metrics=Exposition("orders", held).render, take_status=dict,
        is_alive=lambda: True, readiness=lambda: (True, ""),
    )  # fmt: skip
    keeps.start()
    with Served(root) as served:
        shows = monitor(served.server, Address("127.0.0.1", 0), MonitoringConfig(), "orders")
        served.add_slot("lost")
        served.add_slot("behind").n = 1
        first = min((root / "commits").glob("*.json"))
        first.unlink()
        with Watch(tmp_path / "prometheus", shows.address.port, keeps.address.port) as prometheus:
            prometheus.fires(*PROVOKED_BY_CLIENTS)
            needed[:] = [KeptSlot("holds", 15)]
            keeper.work()
            with served.connect() as session:
                session.execute("SELECT pg_drop_replication_slot('lost')")
                session.execute("SELECT pg_replication_slot_advance('behind', 'FFFF/0')")
            prometheus.resolves(*PROVOKED_BY_CLIENTS)
        shows.close()
    keeps.close()
