"""Disks that are full or broken: the daemon waits or ends, and nothing is lost."""

import contextlib
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from integration.test_streaming import stream_early
from kit import landing, oracle
from kit.daemon import Daemon
from kit.postgres import Database, Session, run
from kit.workload import Workload, prepare

from gaussdecode.cli import main
from gaussdecode.errors import EX_IOERR, EX_OK, EX_UNAVAILABLE

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
_POINTS = "GAUSSDECODE_FAILPOINTS"


def _fill(daemon: Daemon, workload: Workload) -> None:
    """Let a daemon, on a disk that has room for 25 writes, run into its end."""
    daemon.wait_for_state("streaming")
    workload.run(40)
    daemon.wait_while_running(
        lambda: "disk is full" in daemon.get("/readyz")[1].decode(), "a full disk"
    )


def _land_the_rest(daemon: Daemon) -> None:
    """Start again without faults, and compare."""
    daemon.environment.clear()
    with daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    oracle.check(daemon.root, daemon.database)


@contextlib.contextmanager
def _small_disk(directory: Path, size: str) -> Iterator[bool]:
    """Mount a small file system, where we may; tell whether we did."""
    directory.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0750", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.mark.parametrize(
    ("point", "error"),
    [
        ("write:20", "ENOSPC"),
        ("create:12", "EDQUOT"),
        ("link:3", "ENOSPC"),
        ("make_directory:6", "EDQUOT"),
    ],
)
def test_full_disk_passes(
    database_15: Database, make_daemon: MakeDaemon, point: str, error: str
) -> None:
    """An operation that finds the disk full is done again when there is room."""
    workload = prepare(database_15, 30)
    daemon = make_daemon(database_15, environment={_POINTS: f"{point}={error}"})
    with daemon:
        workload.run(60)
        daemon.catch_up()
        assert daemon.stop() == 0
    oracle.check(daemon.root, database_15)


def test_full_disk_waits(
    database_15: Database, make_daemon: MakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that stays full stops the landing and not the connection; acts are answered; room lets it go on."""
    workload = prepare(database_15, 31)
    daemon = make_daemon(database_15)
    with _small_disk(daemon.root, "24m") as mounted, daemon:
        daemon.wait_for_state("streaming")
        workload.run(20)
        daemon.catch_up()
        ballast = daemon.root.parent / "ballast"
        if mounted:
            ballast = daemon.root / ".ballast"
            # Unbuffered: closing must have nothing left to write.
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(os.urandom(65536))
        before = daemon.durable_lsn()
        workload.run(60)
        if mounted:
            daemon.wait_while_running(
                lambda: daemon.get("/readyz")[0] != 200, "not ready: the disk is full"
            )
            assert daemon.durable_lsn() >= before
            assert database_15.slot_positions()[1] <= daemon.durable_lsn()
            for act in ("rotate", "pause"):
                capsys.readouterr()
                assert main(["ctl", str(daemon.config_path), act]) == EX_UNAVAILABLE
                assert "not done yet: the landing's disk is full" in capsys.readouterr().err
            for act in ("resume", "reload"):
                assert main(["ctl", str(daemon.config_path), act]) == EX_OK
            ballast.unlink()
        daemon.catch_up()
        assert daemon.stop() == 0
        oracle.check(daemon.root, database_15)


def test_full_disk_at_the_start_is_said(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Recovery that waits for room is seen over HTTP and ends in order; nothing is lost by it."""
    workload = prepare(database_15, 36)
    daemon = make_daemon(database_15)
    with daemon:
        workload.run(20)
        daemon.catch_up()
        assert daemon.stop() == 0
    workload.run(20)
    daemon.environment[_POINTS] = "create:1+=ENOSPC"
    with daemon:
        daemon.wait_while_running(
            lambda: "waits for space" in ((daemon.status() or {}).get("detail") or ""),
            "a full disk",
        )
        assert daemon.get("/livez")[0] == 200
        status, why = daemon.get("/readyz")
        assert status == 503
        assert b"recovery waits for space" in why
        values = daemon.get("/metrics")[1].decode().splitlines()
        (full,) = (line for line in values if line.startswith("gaussdecode_land_disk_full"))
        assert float(full.split()[-1]) == 1
        record = daemon.status()
        assert record is not None
        assert record["state"] == "starting"
        assert daemon.stop() == 0
    _land_the_rest(daemon)


@pytest.mark.parametrize("point", ["write:25", "sync:9", "rename:3", "sync_directory:12"])
def test_broken_disk_ends_it(database_15: Database, make_daemon: MakeDaemon, point: str) -> None:
    """A disk error ends the daemon with status 74, and the next start repairs what it left."""
    workload = prepare(database_15, 32)
    daemon = make_daemon(database_15, environment={_POINTS: f"{point}=EIO"})
    with daemon:
        workload.run(40)
        assert daemon.wait() == EX_IOERR
        entries = daemon.entries()
        if entries:
            assert database_15.slot_positions()[1] <= landing.position(entries[-1])
    _land_the_rest(daemon)


@pytest.mark.parametrize("victim", ["reader", "worker 0"])
def test_dead_process_beside_a_full_disk(
    database_15: Database, make_daemon: MakeDaemon, victim: str
) -> None:
    """Waiting for room keeps nobody alive who cannot go on; the next start lands the rest."""
    workload = prepare(database_15, 33)
    daemon = make_daemon(database_15, environment={_POINTS: "write:25+=ENOSPC"})
    with daemon:
        _fill(daemon, workload)
        os.kill(daemon.children()[victim], signal.SIGKILL)
        assert daemon.wait() == os.EX_SOFTWARE
    _land_the_rest(daemon)


def test_stop_beside_a_full_disk(database_15: Database, make_daemon: MakeDaemon) -> None:
    """A stop does not wait for room."""
    workload = prepare(database_15, 34)
    daemon = make_daemon(database_15, environment={_POINTS: "write:25+=ENOSPC"})
    with daemon:
        _fill(daemon, workload)
        assert daemon.stop() == 0
    _land_the_rest(daemon)


# ---- bounds --------------------------------------------------------------------------------

_IMPATIENT: Final = 3.0  # seconds after which the server gives a silent client up
_SMALL_SPOOL: Final = {"decoding": {"max-txn-in-memory": 1}, "landing": {"spool-bytes": "2MiB"}}


def _large(database: Database) -> None:
    """Tables for transactions that are larger than the bound, and a server without patience."""
    database.execute("CREATE SCHEMA kit")
    database.execute("CREATE TABLE kit.large (id int8 PRIMARY KEY, v text)")
    database.execute("CREATE TABLE kit.small (id int8 PRIMARY KEY)")
    database.execute(
        f"ALTER DATABASE \"{database.name}\" SET wal_sender_timeout = '{_IMPATIENT:.0f}s'"
    )
    database.create_slot()


def _insert(session: Session, first: int, count: int) -> None:
    rows = f"SELECT id, repeat('x', 200) FROM generate_series({first}, {first + count - 1}) id"
    run(session, f"INSERT INTO kit.large {rows}")


def _sender(database: Database) -> int | None:
    """The process that sends to the slot."""
    query = f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{database.slot}'"
    pid: int | None = database.execute(query)[0][0]
    return pid


def _stays_connected(daemon: Daemon) -> None:
    """The server's patience would end twice, and its process is the same."""
    before = _sender(daemon.database)
    assert before is not None
    until = time.monotonic() + 2 * _IMPATIENT
    while time.monotonic() < until:
        assert _sender(daemon.database) == before, daemon.log_tail()
        time.sleep(0.2)
    status = daemon.status()
    assert status is not None
    assert status["state"] == "streaming"


def _spools(daemon: Daemon) -> list[os.stat_result]:
    """The files of its spool, which have no names."""
    found = []
    for link in Path(f"/proc/{daemon.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if f"{daemon.root}/spool/" in str(link.readlink()):
                found.append(link.stat())
    return found


def _rows(daemon: Daemon, table: str) -> int:
    return sum(
        change.schema.table == ("kit", table) for change in landing.read(daemon.root).changes
    )


def test_transaction_that_is_larger_than_the_spool(
    database_15: Database, make_daemon: MakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, and the connection is kept; with a higher bound it lands, and what follows."""
    database = database_15
    _large(database)
    daemon = make_daemon(database, config=_SMALL_SPOOL)
    with daemon:
        daemon.wait_for_state("streaming")
        database.execute("INSERT INTO kit.small VALUES (1)")
        daemon.catch_up()
        landed = daemon.durable_lsn()
        with database.connect() as session:
            _insert(session, 1, 60_000)
        database.execute("INSERT INTO kit.small VALUES (2)")
        daemon.wait_while_running(
            lambda: "landing.spool-bytes (2MiB)" in daemon.get("/readyz")[1].decode(), "it is said"
        )
        _stays_connected(daemon)
        (spool,) = _spools(daemon)
        assert spool.st_size <= 2 << 20
        status = daemon.status()
        assert status is not None
        assert "spool-full" in [trouble["name"] for trouble in status["troubles"]]
        assert status["working_txn_spooled"] <= spool.st_size
        assert status["working_txn_spooled_batches"] > 0
        assert main(["status", str(daemon.config_path)]) == EX_UNAVAILABLE
        said = capsys.readouterr()
        assert "are in spool/ and in no queue" in said.out
        assert "Set landing.spool-bytes higher" in said.err
        assert daemon.durable_lsn() == landed
        assert daemon.stop() == 0
        assert daemon.log.read_text().count("spool_full") == 1
    assert _rows(daemon, "large") == 0
    daemon.write_config(landing={"spool-bytes": "64MiB"})
    with daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
    assert (_rows(daemon, "large"), _rows(daemon, "small")) == (60_000, 2)
    oracle.check(daemon.root, database)


def _troubles(daemon: Daemon) -> list[str]:
    status = daemon.status()
    return [] if status is None else [trouble["name"] for trouble in status["troubles"]]


def test_open_transactions_that_fill_the_spool(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """Streamed, none of them could end; asked for whole, each has room, and others land at once."""
    database = database_15
    _large(database)
    stream_early(database)
    config = {**_SMALL_SPOOL, "source": {"streaming": "on"}}
    daemon = make_daemon(database, config=config)
    with daemon, database.connect() as first, database.connect() as second:
        daemon.wait_for_state("streaming")
        for number, session in enumerate((first, second)):
            run(session, "BEGIN")
            _insert(session, 100_000 * number, 12_000)
        daemon.wait_while_running(
            lambda: "streaming_fallback" in daemon.log.read_text(), "whole ones are asked for"
        )
        database.execute("INSERT INTO kit.small VALUES (1)")
        daemon.catch_up()
        assert _rows(daemon, "small") == 1
        status = daemon.status()
        assert status is not None
        assert (status["working_txn_cnt"], status["working_txn_spooled_batches"]) == (0, 0)
        daemon.wait_while_running(lambda: "not-streamed" in _troubles(daemon), "it is told")
        run(first, "COMMIT")
        run(second, "COMMIT")
        daemon.catch_up()
        assert daemon.stop() == 0
    assert _rows(daemon, "large") == 24_000
    oracle.check(daemon.root, database)


def test_lost_connection_gives_the_spool_back(
    database_15: Database, make_daemon: MakeDaemon
) -> None:
    """What was spooled of an open transaction comes again; meanwhile it takes no room."""
    database = database_15
    _large(database)
    stream_early(database)
    config = {"decoding": {"max-txn-in-memory": 1}, "source": {"streaming": "on"}}
    daemon = make_daemon(database, config=config)
    with daemon, database.connect() as session:
        daemon.wait_for_state("streaming")
        run(session, "BEGIN")
        _insert(session, 1, 20_000)
        daemon.wait_while_running(
            lambda: any(spool.st_size > 1 << 20 for spool in _spools(daemon)), "it is spooled"
        )
        (before,) = _spools(daemon)
        assert stat.S_IMODE(before.st_mode) == 0o600
        assert list((daemon.root / "spool").iterdir()) == []
        sender = _sender(database)
        allow = f'ALTER DATABASE "{database.name}" ALLOW_CONNECTIONS'
        database.server.execute(f"{allow} false")
        database.server.execute(f"SELECT pg_terminate_backend({sender})")
        daemon.wait_for_state("retrying")
        daemon.wait_while_running(lambda: _spools(daemon) == [], "the file is let go")
        database.server.execute(f"{allow} true")
        run(session, "COMMIT")
        daemon.catch_up()
        assert _spools(daemon) == [] or _spools(daemon)[0].st_size == 0
        assert daemon.stop() == 0
    assert _rows(daemon, "large") == 20_000
    oracle.check(daemon.root, database)


def test_room_that_is_kept(database_15: Database, make_daemon: MakeDaemon) -> None:
    """Rows wait above the end of the disk, with their connection, and go on when there is room."""
    database = database_15
    _large(database)
    daemon = make_daemon(database, config={"landing": {"min-free-bytes": "40MiB"}})
    with _small_disk(daemon.root, "64m") as is_mounted:
        if not is_mounted:  # not as root: then no disk is small enough
            daemon.write_config(landing={"min-free-bytes": "1000000GiB"})
        with daemon:
            daemon.wait_for_state("streaming")
            ballast = daemon.root / ".ballast"
            if is_mounted:
                database.execute("INSERT INTO kit.small VALUES (1)")
                daemon.catch_up()
                ballast.write_bytes(bytes(30 << 20))
            with database.connect() as session:
                _insert(session, 1, 20_000)
            daemon.wait_while_running(
                lambda: "landing.min-free-bytes is" in daemon.get("/readyz")[1].decode(),
                "it is said",
            )
            before = daemon.durable_lsn()
            _stays_connected(daemon)
            assert daemon.durable_lsn() == before
            if is_mounted:
                assert os.statvfs(daemon.root).f_bavail * 4096 > 25 << 20
                ballast.unlink()
            else:
                assert daemon.stop() == 0
                daemon.write_config(landing={"min-free-bytes": "0B"})
                daemon.start()
            daemon.catch_up()
            assert daemon.stop() == 0
        assert _rows(daemon, "large") == 20_000
        oracle.check(daemon.root, database)
