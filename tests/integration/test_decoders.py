"""A daemon that changes the number of its decoders while it streams: nothing is lost or doubled."""

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from kit import oracle
from kit.daemon import Daemon
from kit.postgres import Database
from kit.workload import Workload

pytestmark = pytest.mark.integration

# Stands in for the measuring alone: what happens after its answer is the daemon's own.
RESTLESS = """
    import itertools

    from gaussdecode.daemon import decoders


    class Restless(decoders.Choice):
        numbers = itertools.cycle((2, 4, 1, 3, 1, 2, 1))

        def is_due(self, now):
            if self._due_at is None:
                self._due_at = now + 0.4
            return now >= self._due_at

        def look(self, seen):
            assert seen.reader_busy >= 0 and seen.idle
            self.count = next(self.numbers)
            return True


    decoders.Choice = Restless
"""
CHANGES = re.compile(rb"^gaussdecode_decode_decoder_changes_total\S* (\d+)", re.MULTILINE)
DECODERS = re.compile(rb"^gaussdecode_decode_decoders\S* (\d+)", re.MULTILINE)


def of_metric(daemon: Daemon, pattern: re.Pattern[bytes]) -> int:
    """A number of /metrics; -1 while there is none, or nobody answers yet."""
    try:
        found = pattern.search(daemon.get("/metrics")[1])
    except OSError:
        return -1
    return int(found[1]) if found else -1


def test_changes_of_decoders_lose_nothing(
    database: Database, make_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    """Many sessions with other numbers of decoders land what the server has, each change once."""
    place = tmp_path / "restless"
    place.mkdir()
    (place / "sitecustomize.py").write_text(textwrap.dedent(RESTLESS))
    workload = Workload(database, 31)
    workload.create()
    database.create_slot()
    config = {"decoding": {"parallel-decode-num": "auto"}}
    environment = {"PYTHONPATH": str(place)}
    with make_daemon(database, config=config, environment=environment) as daemon:
        workload.run(300)
        daemon.wait_while_running(lambda: of_metric(daemon, CHANGES) >= 10, "ten changes")
        workload.run(100)
        daemon.catch_up()
        assert daemon.stop() == 0
    assert b"session_retrying" not in daemon.log.read_bytes()
    assert b"decoders_changed" in daemon.log.read_bytes()
    oracle.check(daemon.root, database)


def test_auto_begins_with_one_and_stays_while_nothing_limits(
    database: Database, make_daemon: Callable[..., Daemon]
) -> None:
    """A quiet stream is decoded in the reader's process, and is not interrupted."""
    database.execute("CREATE TABLE public.t (id int8 PRIMARY KEY)")
    database.create_slot()
    with make_daemon(database, config={"decoding": {"parallel-decode-num": "auto"}}) as daemon:
        database.execute("INSERT INTO public.t SELECT generate_series(1, 1000)")
        daemon.catch_up()
        assert of_metric(daemon, DECODERS) == 1
        assert of_metric(daemon, CHANGES) == 0
        status = daemon.status() or {}
        assert status["parallel_decode_num"] == 1
        assert list(status["children"]) == ["reader"]
        assert daemon.stop() == 0
