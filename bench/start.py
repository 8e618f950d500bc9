"""How long does a start take, and what does a daemon at rest hold in memory?

Three questions, each on an otherwise quiet machine:

    help    `gaussdecode --help`, wall and CPU seconds. The bases are the bare interpreter, and
            one that imports argparse: what any command in Python costs
    first   from the start of the daemon's process until the first entry of the commit log that
            has a file exists: durable, to be read. The slot has changes waiting; the landing was
            begun before, as an operator does it. The base is psql's own: a session that asks the
            server for one row
    rest    so many daemons on as many slots of one server, each of a database of its own. Each
            lands a few rows a second for a while, then nothing comes for longer than allocators
            keep what was freed. Proportional set size of all processes of each daemon: what many
            share counts for each of them by its share. The base is an interpreter at rest

`first` and `rest` with decoding in the reader, and with two decoders.

    python bench/start.py [--runs N] [--daemons N] [--rest SECONDS] [--decoders N ...] [--out FILE]
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import corpus
import processes
from kit.daemon import Daemon, Json
from kit.postgres import Database, Postgres
from live import SIZES, check_running

_WAITING_ROWS: Final = 1000
_TRICKLE_SECONDS: Final = 5
_LOOK_SECONDS: Final = 0.001
_RINGS: Final[Json] = {"raw-ring-bytes": "4MiB", "decoded-ring-bytes": "16MiB"}  # the defaults
_PSS: Final = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)
_SLEEPER: Final = "import sys; sys.stdin.read()"
_KB: Final = 1024
_MB: Final = 1_000_000


def time_command(command: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a command that prints little."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with status {process.returncode}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def measure_help(runs: int) -> dict[str, Any]:
    """`gaussdecode --help` and its bases, in turns."""
    commands = {
        "interpreter": [sys.executable, "-c", "pass"],
        "argparse": [sys.executable, "-c", "import argparse"],
        "help": [str(Path(sys.executable).parent / "gaussdecode"), "--help"],
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for command in commands.values():
        time_command(command)  # from here on the kernel has the files
    for _ in range(runs):
        for name, command in commands.items():
            found[name].append(time_command(command))
    return {
        name: {
            "seconds": corpus.spread([wall for wall, _ in times]),
            "cpu_seconds": corpus.spread([spent for _, spent in times]),
        }
        for name, times in found.items()
    }


def make_daemon(database: Database, directory: Path, decoders: int) -> Daemon:
    """A daemon that has its landing and was not started yet."""
    directory.mkdir()
    daemon = Daemon(
        database,
        directory,
        config={
            "decoding": {"parallel-decode-num": decoders},
            "landing": SIZES,
            "ring": _RINGS,
            "monitoring": {"log-level": "warning"},
        },
    )
    daemon.begin()
    return daemon


def make_database(server: Postgres, name: str) -> Database:
    """A database with a table and a slot."""
    database = Database(server, name)
    corpus.make_table(database, "narrow", 0)
    database.create_slot()
    return database


def base_of_first(server: Postgres) -> float:
    """Seconds of a session of psql that asks for one row."""
    command = [str(server.program("psql")), "-Atc", "SELECT 1", server.dsn("postgres")]
    return time_command(command)[0]


def start_once(database: Database, directory: Path, decoders: int) -> tuple[float, float]:
    """Seconds from the start of the process to the first entry with a file, and CPU seconds."""
    daemon = make_daemon(database, directory, decoders)
    newest = max((daemon.root / "commits").glob("[0-9]*.json"))
    path = _entry_path(daemon, int(newest.stem) + 1)
    began = time.perf_counter()
    with daemon:
        while not (path.exists() and _has_files(path)):
            if path.exists() and not _has_files(path):
                path = _entry_path(daemon, int(path.stem) + 1)
                continue
            check_running(daemon)
            time.sleep(_LOOK_SECONDS)
        seconds = time.perf_counter() - began
        watch = processes.ProcessWatch(daemon.pid)
        watch.look()
        daemon.stop()
    return seconds, sum(watch.cpu_seconds.values())


def _entry_path(daemon: Daemon, number: int) -> Path:
    return daemon.root / "commits" / f"{number:020d}.json"


def _has_files(path: Path) -> bool:
    """Whether an entry has a file."""
    return bool(json.loads(path.read_text())["files"])


def measure_first(server: Postgres, directory: Path, decoders: int, runs: int) -> dict[str, Any]:
    """Start a daemon on changes that wait, again and again, each time from the beginning."""
    base, found = [], []
    for run in range(runs):
        database = make_database(server, f"first_{decoders}_{run}")
        corpus.fill_table(database, "narrow", _WAITING_ROWS)
        base.append(base_of_first(server))
        found.append(start_once(database, directory / database.name, decoders))
        corpus.drop_slot(database, database.slot)
        database.drop()
    return {
        "decoders": decoders,
        "seconds": corpus.spread([wall for wall, _ in found]),
        "cpu_seconds": corpus.spread([spent for _, spent in found]),
        "psql_seconds": corpus.spread(base),
    }


def pss_bytes(pid: int) -> int:
    """Proportional set size of a process."""
    (size,) = _PSS.findall(Path(f"/proc/{pid}/smaps_rollup").read_text())
    return int(size) * _KB


def base_of_rest() -> int:
    """Proportional set size of an interpreter that waits."""
    with subprocess.Popen([sys.executable, "-c", _SLEEPER], stdin=subprocess.PIPE) as process:
        time.sleep(0.5)
        size = pss_bytes(process.pid)
        process.communicate()
    return size


def trickle(databases: Sequence[Database]) -> None:
    """A few rows a second in every database."""
    for second in range(_TRICKLE_SECONDS):
        for database in databases:
            corpus.fill_table(database, "narrow", 1 + second)
        time.sleep(1)


def measure_rest(
    server: Postgres, directory: Path, decoders: int, count: int, seconds: float
) -> dict[str, Any]:
    """Memory of so many daemons, each on a slot of its own, when nothing has come for a while."""
    databases = [make_database(server, f"rest_{decoders}_{number}") for number in range(count)]
    with contextlib.ExitStack() as stack:
        daemons = [make_daemon(one, directory / one.name, decoders) for one in databases]
        for daemon in daemons:
            stack.enter_context(daemon)
        for daemon in daemons:
            daemon.wait_for_state("streaming")
        trickle(databases)
        for daemon in daemons:
            daemon.catch_up()
        time.sleep(seconds)
        held = [
            {
                name: pss_bytes(pid)
                for name, pid in {"main": one.pid, **processes.children(one.pid)}.items()
            }
            for one in daemons
        ]
        base = base_of_rest()
        for daemon in daemons:
            daemon.stop()
    for database in databases:
        corpus.drop_slot(database, database.slot)
        database.drop()
    return {
        "decoders": decoders,
        "daemons": count,
        "mb": corpus.spread([sum(one.values()) / _MB for one in held]),
        "mb_by_process": {
            name: corpus.spread([one[name] / _MB for one in held]) for name in held[0]
        },
        "interpreter_mb": round(base / _MB, 1),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9, help="of the first two questions")
    parser.add_argument("--daemons", type=int, default=5)
    parser.add_argument("--rest", type=float, default=12.0, help="seconds without changes")
    parser.add_argument("--decoders", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result: dict[str, Any] = {"bench": "start", "help": measure_help(args.runs)}
    with tempfile.TemporaryDirectory() as name, corpus.start_server() as server:
        directory = Path(name)
        result["first"] = [
            measure_first(server, directory, decoders, args.runs) for decoders in args.decoders
        ]
        result["rest"] = [
            measure_rest(server, directory, decoders, args.daemons, args.rest)
            for decoders in args.decoders
        ]
    corpus.write_result(args.out, {**result, "machine": corpus.machine()})


if __name__ == "__main__":
    main()
