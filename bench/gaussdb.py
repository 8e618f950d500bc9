"""How fast does GaussDB's own scenario become durable Parquet?

The product promises 100 Mbit/s (12.5 MB/s) of decoding for tables of 10 to 100 columns and 0.1 to
1 KB a row, mostly INSERT, under 4096 rows to a transaction, style b, sent in batches. A simulated
server sends such a stream from memory, prepared once and moved on, so that it costs the
sender little more than the send; it sends without end. Run by run and in turn:

    receive     a loop that receives and does nothing: the limit
    decoders_N  the daemon with N decoders, from the moment its stream begins until all it had
                received when it was asked to stop is durable (1 would be the server's serial
                mode, which has no style b)
    tls         both again over TLS, with the smallest N: the sender's and our encryption share
                the machine

MB/s of the wire and of rows' values; `ratio` is the daemon over the loop, `product` the daemon
over the product's promise. `columns_curve` is the daemon with the smallest N over tables of
10 to 100 columns, at the same bytes of stream: its `cpu_seconds_per_gb` should be flat.

    python bench/gaussdb.py [--columns N] [--row-bytes N] [--bytes N] [--decoders N ...]
        [--curve N ...] [--curve-bytes N] [--runs N] [--out FILE]
"""

import argparse
import json
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import corpus
import processes
import yaml
from kit import landing

from gaussdecode.demo.ports import free_port
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.gaussdb.options import start_command
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.gaussdb.connection import connect

_PROMISE_MB: Final = 12.5
_TESTS: Final = Path(__file__).resolve().parents[1] / "tests"
_READ_BYTES: Final = 1 << 20
_CYCLE_BYTES: Final = 8 << 20  # more take the sender longer to prepare
_LIMIT_SECONDS: Final = 300


class Load(NamedTuple):
    """What a server is to send."""

    columns: int
    row_bytes: int
    is_tls: bool = False
    cycle_bytes: int = _CYCLE_BYTES


@contextmanager
def load_server(load: Load) -> Iterator[dict[str, Any]]:
    """A server with the load; gives what it says of itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kit.gaussload", "--columns", str(load.columns), "--row-bytes",
         str(load.row_bytes), "--cycle-bytes", str(load.cycle_bytes),
         *(["--tls"] if load.is_tls else [])],
        cwd=_TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait()


def _dsn(facts: dict[str, Any]) -> str:
    safety = "disable"
    if facts["authority"]:
        safety = f"verify-full sslrootcert={facts['authority']}"
    return (
        f"host=127.0.0.1 port={facts['port']} dbname={facts['database']} user={facts['user']} "
        f"sslmode={safety}"
    )


def receive(facts: dict[str, Any], total: int) -> dict[str, Any]:
    """Receive so many bytes and do nothing with them."""
    address = SourceAddress(_dsn(facts), None, is_insecure_allowed=True)
    connection = connect(address, is_replication=True)
    assert isinstance(connection.socket, ssl.SSLSocket) is bool(facts["authority"])
    options = {"parallel-decode-num": "4", "decode-style": "b", "sending-batch": "1"}
    buffer = memoryview(bytearray(_READ_BYTES))
    connection.start_stream(start_command(facts["slot"], Lsn(0), options))
    began, cpu = time.perf_counter(), time.process_time()
    got = len(connection.pending)
    connection.socket.settimeout(_LIMIT_SECONDS)
    while got < total:
        count = connection.socket.recv_into(buffer)
        if not count:
            raise SystemExit("the server closed the connection")
        got += count
    seconds, spent = time.perf_counter() - began, time.process_time() - cpu
    connection.close()
    return {"seconds": seconds, "cpu_seconds": spent, "wire_bytes": got}


def configure(facts: dict[str, Any], directory: Path, decoders: int, port: int) -> Path:
    """Write the daemon's configuration; its landing is `landing` beside it."""
    config = {
        "slot": facts["slot"],
        "source": {"kind": "gaussdb", "dsn": _dsn(facts), "allow-insecure": True},
        "decoding": {"parallel-decode-num": decoders, "skip-empty-xacts": True},
        "landing": {"root": str(directory / "landing"), "max-commit-interval": "2s"},
        "monitoring": {"listen": f"127.0.0.1:{port}", "log-level": "warning"},
    }
    path = directory / "load.yaml"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


def land(facts: dict[str, Any], total: int, directory: Path, decoders: int) -> dict[str, Any]:
    """Let the daemon land about so many bytes."""
    root, port = directory / "landing", free_port()
    path = configure(facts, directory, decoders, port)
    command = [sys.executable, "-m", "gaussdecode"]
    subprocess.run([*command, "slot", "adopt", str(path)], check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen([*command, "run", str(path)])
    watch = processes.ProcessWatch(process.pid)
    number = 0

    def is_committed() -> bool:
        if process.poll() not in (None, 0):
            raise SystemExit(f"the daemon ended with status {process.returncode}")
        return (root / "commits" / f"{number:020d}.json").exists()

    while not is_committed():  # the stream begins after the genesis entry
        time.sleep(0.002)
    watch.restart()
    began = ended = time.perf_counter()
    watch.start()
    wanted = total / facts["cycle_bytes"] * facts["cycle_rows"]

    def share_done() -> float:
        is_committed()  # or the daemon has ended, and says nothing any more
        return _collected_rows(port) / wanted

    corpus.wait_until_done(share_done, began)
    process.terminate()
    while is_committed() or process.poll() is None:
        if not is_committed():
            time.sleep(0.002)
            continue
        number += 1
        ended = time.perf_counter()
        watch.look()
    watch.is_over.set()
    files = [file for entry in landing.read_entries(root) for file in entry["files"]]
    rows = sum(file["rows"] for file in files if file["table"] == "public.load")
    return {
        "seconds": ended - began,
        "cpu_seconds": sum(watch.cpu_seconds.values()),
        "peak_bytes": watch.peak_bytes,
        "wire_bytes": rows / facts["cycle_rows"] * facts["cycle_bytes"],
        "rows": rows,
    }


def _collected_rows(port: int) -> int:
    """How many rows the collector has, as the daemon's status says; 0 until it says anything."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status") as answer:
            stages = json.load(answer)["stages"]
    except urllib.error.URLError:
        return 0
    rows: int = stages.get("collect", {}).get("rows", 0)
    return rows


def run_in_turn(load: Load, total: int, decoders: list[int], runs: int) -> dict[str, Any]:
    """Run the loop and the daemon in turn; give rates."""
    loop: list[dict[str, Any]] = []
    landed: dict[int, list[dict[str, Any]]] = {count: [] for count in decoders}
    with load_server(load) as facts:
        for run in range(runs):
            loop.append(receive(facts, total))
            for count, done in landed.items():
                with tempfile.TemporaryDirectory() as name:
                    done.append(land(facts, total, Path(name), count))
                shown = f"run {run}, {count} decoders: {done[-1]['seconds']:.2f} s"
                print(f"{load}, {shown}", flush=True)
    return {
        "columns": load.columns,
        "row_bytes": load.row_bytes,
        "wire_bytes": total,
        "wire_bytes_per_row": round(facts["cycle_bytes"] / facts["cycle_rows"], 1),
        "receive_mb_per_second": corpus.spread([_rate(run) for run in loop]),
        "receive_cpu_seconds_per_gb": corpus.spread([_cost(run) for run in loop]),
        **{f"decoders_{count}": _summary(load, loop, done) for count, done in landed.items()},
    }


def _rate(run: dict[str, Any]) -> float:
    """MB/s of the wire."""
    rate: float = run["wire_bytes"] / run["seconds"] / 1e6
    return rate


def _cost(run: dict[str, Any]) -> float:
    """CPU seconds per GB of the wire."""
    cost: float = run["cpu_seconds"] / run["wire_bytes"] * 1e9
    return cost


def _summary(load: Load, loop: list[dict[str, Any]], done: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of the daemon with one number of decoders."""
    rows = [run["rows"] / run["seconds"] for run in done]
    return {
        "wire_mb_per_second": corpus.spread([_rate(run) for run in done]),
        "value_mb_per_second": corpus.spread([rate * load.row_bytes / 1e6 for rate in rows]),
        "rows_per_second": corpus.spread(rows),
        "cpu_seconds_per_gb": corpus.spread([_cost(run) for run in done]),
        "ns_per_value": corpus.spread(
            [run["cpu_seconds"] / run["rows"] / load.columns * 1e9 for run in done]
        ),
        "ratio": corpus.spread([_rate(run) / _rate(loop[i]) for i, run in enumerate(done)]),
        "product": corpus.spread([_rate(run) / _PROMISE_MB for run in done]),
        "peak_memory": done[-1]["peak_bytes"],
    }


def _wide(load: Load, columns: int) -> Load:
    """The load with so many columns; its rows are no smaller than that many values are."""
    return load._replace(columns=columns, row_bytes=max(load.row_bytes, 12 * columns))


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The scenario without and with TLS, then the curve."""
    plain = Load(args.columns, args.row_bytes)
    few = [min(args.decoders)]
    result: dict[str, Any] = {"bench": "gaussdb", "runs": args.runs}
    result |= run_in_turn(plain, args.bytes, args.decoders, args.runs)
    result["tls"] = run_in_turn(plain._replace(is_tls=True), args.bytes, few, args.runs)
    result["columns_curve"] = [
        run_in_turn(_wide(plain, columns), args.curve_bytes, few, args.runs)
        for columns in args.curve
    ]
    return {**result, "machine": corpus.machine()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--row-bytes", type=int, default=500)
    parser.add_argument("--bytes", type=int, default=3_000_000_000)
    parser.add_argument("--decoders", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--curve", type=int, nargs="*", default=[10, 20, 50, 100])
    parser.add_argument("--curve-bytes", type=int, default=1_000_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    corpus.write_result(args.out, measure(args))


if __name__ == "__main__":
    main()
