"""How fast does `gaussdecode serve` send what has landed, and what do many clients cost it?

A table is filled while a slot holds its WAL. The daemon lands it from a copy. Then, in turn:

    server          pg_recvlogical -f /dev/null on a copy of the slot, with test_decoding: the
                    database's own sender
    one client      the same program on a virtual slot, for each plug-in
    many clients    CLIENTS of them at once, with test_decoding

rows/s and MB/s of one client, with `ratio`: its rows/s over those of the server in the same run. CPU seconds
of the sender alone, user and system: the walsender's, or of `gaussdecode serve` with its children.
`cpu_share` is the CPU time of serve for all clients over what as many slots would cost the database: the
walsender's, times the number of clients.

    python bench/serve.py [--shape SHAPE] [--rows N] [--runs N] [--clients N] [--out FILE]
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final, Self

import corpus
import processes
from kit.daemon import Daemon
from kit.postgres import Database
from live import run_daemon

from gaussdecode.demo.ports import free_port
from gaussdecode.model.lsn import Lsn

PLUGINS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "test_decoding": ("test_decoding", {}),
    "pgoutput": ("pgoutput", {"proto_version": "1", "publication_names": "all"}),
    "text": (
        "mppdb_decoding",
        {"parallel-decode-num": "2", "decode-style": "t", "sending-batch": "1"},
    ),
    "json": (
        "mppdb_decoding",
        {"parallel-decode-num": "2", "decode-style": "j", "sending-batch": "1"},
    ),
    "binary": (
        "mppdb_decoding",
        {"parallel-decode-num": "2", "decode-style": "b", "sending-batch": "1"},
    ),
}
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_LOOK_SECONDS: Final = 0.01
_FROM_THE_BEGINNING: Final = "-c gaussdecode.start_lsn=earliest"


class Watch(threading.Thread):
    """Remembers the CPU time of the walsender of a slot for as long as it lives."""

    def __init__(self, database: Database, slot: str) -> None:
        super().__init__(daemon=True)
        self._database = database
        self._slot = slot
        self.user = self.system = 0.0
        self.is_over = threading.Event()

    def run(self) -> None:
        """Find its process, and look until it has gone."""
        pid = None
        with self._database.connect() as session:
            while pid is None and not self.is_over.is_set():
                found = session.execute(
                    "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [self._slot]
                ).fetchone()
                pid = found[0] if found else None
        while pid is not None and self._look(Path(f"/proc/{pid}/stat")):
            time.sleep(_LOOK_SECONDS)

    def _look(self, path: Path) -> bool:
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            return False
        self.user, self.system = int(fields[11]) / _TICKS, int(fields[12]) / _TICKS
        return True


class Serving:
    """`gaussdecode serve` of a landing, for as long as the block lasts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.port = free_port()

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "gaussdecode", "serve", str(self._root)]
        command += ["--listen", f"127.0.0.1:{self.port}"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except ConnectionRefusedError:
                if self._process.poll() is not None:
                    raise SystemExit("gaussdecode serve ended") from None
                time.sleep(0.05)
        self.watch = processes.ProcessWatch(self._process.pid)
        self.watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.is_over.set()
        self._process.terminate()
        self._process.wait()

    @property
    def cpu_seconds(self) -> float:
        """Spent so far."""
        self.watch.look()
        return sum(self.watch.cpu_seconds.values())


def _recvlogical(
    program: Path, dsn: str, slot: str, options: dict[str, str], *more: str
) -> list[str]:
    asked = (part for key, value in options.items() for part in ("-o", f"{key}={value}"))
    return [str(program), "-d", dsn, "-S", slot, "--no-loop", "-f", "/dev/null", *more, *asked]


def from_server(database: Database, slot: str, end: Lsn) -> dict[str, float]:
    """Let the database send all that a slot has."""
    watch = Watch(database, slot)
    watch.start()
    began = time.perf_counter()
    program = database.server.program("pg_recvlogical")
    command = _recvlogical(program, database.dsn, slot, {}, "--start", "-E", str(end))
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    watch.is_over.set()
    watch.join()
    return {"seconds": seconds, "cpu_seconds": watch.user + watch.system}


def from_landing(
    database: Database, serving: Serving, plugin: str, end: Lsn, clients: int
) -> dict[str, float]:
    """Let clients read all that has landed, all at once."""
    name, options = PLUGINS[plugin]
    program = database.server.program("pg_recvlogical")
    dsn = f"host=127.0.0.1 port={serving.port} dbname={database.name} user=bench"
    environment = {**os.environ, "PGOPTIONS": _FROM_THE_BEGINNING}
    slots = [f"bench_{number}" for number in range(clients)]
    for slot in slots:
        create = _recvlogical(program, dsn, slot, {}, "--create-slot", "-P", name)
        subprocess.run(create, check=True, capture_output=True, env=environment)
    spent, began = serving.cpu_seconds, time.perf_counter()
    running = [
        subprocess.Popen(
            _recvlogical(program, dsn, slot, options, "--start", "-E", str(end)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for slot in slots
    ]
    for each in running:
        _, said = each.communicate()
        if each.returncode:
            raise SystemExit(f"pg_recvlogical failed: {said.decode()}")
    seconds = time.perf_counter() - began
    spent = serving.cpu_seconds - spent
    for slot in slots:
        subprocess.run(
            _recvlogical(program, dsn, slot, {}, "--drop-slot"), check=True, capture_output=True
        )
    return {"seconds": seconds, "cpu_seconds": spent}


def measure(args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Fill, land, and read in turn."""
    with corpus.start_server() as server:
        database = Database(server, "bench_serve")
        corpus.make_table(database, args.shape, args.rows)
        database.create_slot()
        database.copy_slot("landed")
        corpus.fill_table(database, args.shape, args.rows)
        end = Lsn.parse(database.execute("SELECT pg_current_wal_lsn()::text")[0][0])
        database.execute("CHECKPOINT")  # something to send behind the end
        run_daemon(database, "landed", end, directory / "daemon", 1)
        root = Daemon(database, directory / "daemon").root
        base: list[dict[str, float]] = []
        one: dict[str, list[dict[str, float]]] = {name: [] for name in PLUGINS}
        many: list[dict[str, float]] = []
        with Serving(root) as serving:
            for run in range(args.runs):
                database.copy_slot(f"plain_{run}", "test_decoding")
                base.append(from_server(database, f"plain_{run}", end))
                corpus.drop_slot(database, f"plain_{run}")
                for name in PLUGINS:
                    one[name].append(from_landing(database, serving, name, end, 1))
                many.append(from_landing(database, serving, "test_decoding", end, args.clients))
                print(f"run {run}: {base[-1]} {one} {many[-1]}", flush=True)
    return {
        "bench": "serve",
        "shape": args.shape,
        "rows": args.rows,
        "runs": args.runs,
        "clients": args.clients,
        "server": _summary(base, base, args.rows),
        **{name: _summary(done, base, args.rows) for name, done in one.items()},
        "many": {
            "seconds": corpus.spread([run["seconds"] for run in many]),
            "cpu_seconds": corpus.spread([run["cpu_seconds"] for run in many]),
            "cpu_share": corpus.spread(
                [
                    run["cpu_seconds"] / (of["cpu_seconds"] * args.clients)
                    for run, of in zip(many, base, strict=True)
                ]
            ),
        },
        "machine": corpus.machine(),
    }


def _summary(
    done: list[dict[str, float]], base: list[dict[str, float]], rows: int
) -> dict[str, Any]:
    return {
        "rows_per_second": corpus.spread([rows / run["seconds"] for run in done]),
        "cpu_seconds_per_million_rows": corpus.spread(
            [run["cpu_seconds"] / (rows / 1e6) for run in done]
        ),
        "ratio": corpus.spread(
            [of["seconds"] / run["seconds"] for run, of in zip(done, base, strict=True)]
        ),
    }


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shape", default="narrow")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        corpus.write_result(args.out, measure(args, Path(directory)))


if __name__ == "__main__":
    main()
