"""GaussDB's way of reading the lengths of the queues, with each stage stopped in turn."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.daemon import Daemon
from kit.postgres import Database
from kit.stilldisk import StillDisk

from gaussdecode.cli import main

pytestmark = pytest.mark.integration
MakeDaemon = Callable[..., Daemon]
# An odd number, and many batches to a ring: small ones are then not all the same decoder's.
QUEUES = {
    "decoding": {"parallel-decode-num": 3},
    "ring": {"raw-ring-bytes": "16MiB", "decoded-ring-bytes": "16MiB"},
}
ROWS = "INSERT INTO public.t SELECT i, repeat('x', 20000) FROM generate_series(1, 150) i"


def shares(daemon: Daemon) -> list[list[float]]:
    """How full the queues are by the columns alone: of each decoder, read and decode change queue."""
    record = daemon.record()
    columns = [record[f"{name}_change_queue_length"] for name in ("read", "decode")]
    lengths = [[int(part.split(": ")[1]) for part in text.split(", ") if part] for text in columns]
    return [[length / 128 for length in queues] for queues in lengths]


def limit(daemon: Daemon) -> tuple[str, str, str]:
    """What the status names: stage, sentence, what moves it."""
    found = daemon.record()["limit"]
    return found["stage"], found["sentence"], found["setting"]


def reads_as(read: bool, decode: bool) -> Callable[[Daemon], bool]:
    """Whether both columns are large (more than half), or small, as means over the decoders.

    What stands is full by one queue at least, of the decoder whose turn it is: batches that
    a slow server has cut short leave the others less, and by chance much less.
    """

    def holds(daemon: Daemon) -> bool:
        found = shares(daemon)
        return all(
            bool(queues) and (sum(queues) / len(queues) > 0.5) is is_large
            for queues, is_large in zip(found, (read, decode), strict=True)
        )

    return holds


@contextlib.contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Processes that do nothing for a while."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def writing(database: Database) -> Iterator[None]:
    """Large rows, three megabytes a transaction, until the end of the block."""
    done = threading.Event()

    def write() -> None:
        with database.connect() as connection:
            connection.autocommit = True
            while not done.is_set():
                connection.execute(ROWS)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_the_columns_name_the_stage_that_stands(
    database_15: Database,
    make_daemon: MakeDaemon,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Rows so large that bytes bind long before entries do.

    Both small: the server stands, or the reader. Only read queues large: the decoders stand.
    Both large: the landing stands, which status and page then name, with what would help.
    """
    disk = StillDisk(tmp_path)
    database = database_15
    database.execute("CREATE TABLE public.t (id int4, v text)")
    database.create_slot()
    small = {"row-group-bytes": "1MiB", "memory-bytes": "32MiB", "writer-lanes": 1}
    config = {**QUEUES, "landing": small}
    daemon = make_daemon(database, config=config)
    daemon.environment |= disk.environment
    with daemon:
        daemon.wait_for_state("streaming")
        children = daemon.children()
        decoders = [pid for name, pid in children.items() if "worker" in name]
        ((sender,),) = database.execute(
            f"SELECT active_pid FROM pg_replication_slots WHERE slot_name = '{database.slot}'"
        )
        empty, decoding_stands = reads_as(False, False), reads_as(True, False)
        sending_blocked = reads_as(True, True)

        with writing(database):
            with stopped(*decoders):
                daemon.wait_while_running(lambda: decoding_stands(daemon), "full read queues")
                entries = [of["read"]["entries"] for of in daemon.record()["queues"]]
                assert max(entries) < 64, "entries alone would not have shown it"
            with stopped(int(sender)):
                daemon.wait_while_running(lambda: empty(daemon), "empty queues: no server")
            with stopped(children["reader"]):
                daemon.wait_while_running(lambda: empty(daemon), "empty queues: no reader")
            disk.stand()
            daemon.wait_while_running(lambda: sending_blocked(daemon), "both queues full")
            daemon.wait_while_running(lambda: limit(daemon)[0] == "publish", "the landing named")
            _, sentence, setting = limit(daemon)
            assert "collector waits for" in sentence
            main(["status", str(daemon.config_path)])
            assert f"{sentence} Remedy: {setting}" in capsys.readouterr().out
            assert "a disk that syncs faster" in daemon.get("/")[1].decode()
            disk.go_on()
        daemon.catch_up()
        assert daemon.stop() == 0


def test_a_full_disk_fills_both_queues(database_15: Database, make_daemon: MakeDaemon) -> None:
    """They are read like those of any landing that stands; what limits is the disk."""
    database = database_15
    database.execute("CREATE TABLE public.t (id int4, v text)")
    database.create_slot()
    daemon = make_daemon(
        database, config=QUEUES, environment={"GAUSSDECODE_FAILPOINTS": "write:25+=ENOSPC"}
    )
    sending_blocked = reads_as(True, True)
    with daemon:
        daemon.wait_for_state("streaming")
        with writing(database):
            daemon.wait_while_running(lambda: sending_blocked(daemon), "both queues full")
        stage, _, setting = limit(daemon)
        assert (stage, "free space" in setting) == ("disk", True)
    daemon.environment.clear()
    with daemon:
        daemon.catch_up()
        assert daemon.stop() == 0
