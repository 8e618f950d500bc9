"""How fast does GaussDB's own scenario become durable Parquet?

The product promises 100 Mbit/s (12.5 MB/s) of decoding for tables of 10 to 100 columns and 0.1 to
1 KB a row, mostly INSERT, under 4096 rows to a transaction, style b, sent in batches. A simulated
server sends such a stream from memory, prepared once and moved on, so that it costs the
sender little more than the send. Run by run and in turn:

    receive     a loop that receives the same stream and does nothing: the limit
    decoders_N  the daemon with N decoders, from its first byte to the last row durable
                (1 would be the server's serial mode, which has no style b)

MB/s of the wire and of rows' values; `ratio` is the daemon over the loop, `product` the daemon
over the product's promise. No TLS.

    python bench/gaussdb.py [--columns N] [--row-bytes N] [--bytes N] [--decoders N ...] [--out FILE]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import corpus
import processes
import yaml
from kit import landing
from kit.daemon import free_port

from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.gaussdb.options import start_command
from gaussdecode.source.gaussdb import connect
from gaussdecode.source.postgresql import SourceAddress

_PROMISE_MB: Final = 12.5
_TESTS: Final = Path(__file__).resolve().parents[1] / "tests"
_READ_BYTES: Final = 1 << 20
_LIMIT_SECONDS: Final = 300


@contextmanager
def load_server(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A server with the load; gives what it says of itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kit.gaussload", "--columns", str(args.columns), "--row-bytes",
         str(args.row_bytes), "--bytes", str(args.bytes)],
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
    return (
        f"host=127.0.0.1 port={facts['port']} dbname={facts['database']} user={facts['user']} "
        "sslmode=disable"
    )


def receive(facts: dict[str, Any]) -> float:
    """Seconds to receive everything and do nothing with it."""
    address = SourceAddress(_dsn(facts), None, is_insecure_allowed=True)
    connection = connect(address, is_replication=True)
    options = {"parallel-decode-num": "4", "decode-style": "b", "sending-batch": "1"}
    buffer = memoryview(bytearray(_READ_BYTES))
    left = facts["cycles"] * facts["cycle_bytes"]
    connection.start_stream(start_command(facts["slot"], Lsn(0), options))
    began = time.perf_counter()
    left -= len(connection.pending)
    connection.socket.settimeout(_LIMIT_SECONDS)
    while left > 0:
        left -= connection.socket.recv_into(buffer)
    seconds = time.perf_counter() - began
    connection.close()
    return seconds


def land(facts: dict[str, Any], directory: Path, decoders: int) -> dict[str, Any]:
    """Land everything with the daemon."""
    root = directory / "landing"
    config = {
        "slot": facts["slot"],
        "source": {"kind": "gaussdb", "dsn": _dsn(facts), "allow-insecure": True},
        "decoding": {"parallel-decode-num": decoders, "skip-empty-xacts": True},
        "landing": {"root": str(root), "max-commit-interval": "2s"},
        "monitoring": {"listen": f"127.0.0.1:{free_port()}", "log-level": "warning"},
    }
    path = directory / "load.yaml"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    process = subprocess.Popen([sys.executable, "-m", "gaussdecode", "run", str(path)])
    watch = processes.ProcessWatch(process.pid)
    watch.start()
    rows, wanted = 0, facts["cycles"] * facts["cycle_rows"]
    began, number = 0.0, 0
    while rows < wanted:
        entry = root / "commits" / f"{number:020d}.json"
        if not entry.exists():
            if process.poll() is not None:
                raise SystemExit(f"the daemon ended with status {process.returncode}")
            time.sleep(0.002)
            continue
        began = began or time.perf_counter()  # the genesis entry: the stream begins
        files = json.loads(entry.read_text())["files"]
        rows += sum(file["rows"] for file in files if file["table"] == "public.load")
        number += 1
    seconds = time.perf_counter() - began
    watch.look()
    watch.is_over.set()
    process.terminate()
    process.wait()
    landing.read_entries(root)
    spent = sum(watch.cpu_seconds.values())
    return {"seconds": seconds, "cpu_seconds": spent, "peak_bytes": watch.peak_bytes}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run the loop and the daemon in turn."""
    loop: list[float] = []
    runs: dict[int, list[dict[str, Any]]] = {count: [] for count in args.decoders}
    sent: dict[str, Any] = {}
    for run in range(args.runs):
        with load_server(args) as facts:
            sent = facts
            loop.append(receive(facts))
        for count, done in runs.items():
            with load_server(args) as facts, tempfile.TemporaryDirectory() as name:
                done.append(land(facts, Path(name), count))
            print(f"run {run}, {count} decoders: {done[-1]['seconds']:.2f} s", flush=True)
    wire = sent["cycles"] * sent["cycle_bytes"]
    rows = sent["cycles"] * sent["cycle_rows"]
    result: dict[str, Any] = {
        "bench": "gaussdb",
        "columns": args.columns,
        "row_bytes": args.row_bytes,
        "rows": rows,
        "wire_bytes": wire,
        "receive_mb_per_second": corpus.spread([wire / s / 1e6 for s in loop]),
    }
    for count, done in runs.items():
        rates = [wire / run["seconds"] / 1e6 for run in done]
        result[f"decoders_{count}"] = {
            "wire_mb_per_second": corpus.spread(rates),
            "value_mb_per_second": corpus.spread(
                [rows * args.row_bytes / run["seconds"] / 1e6 for run in done]
            ),
            "rows_per_second": corpus.spread([rows / run["seconds"] for run in done]),
            "cpu_seconds_per_gb": corpus.spread([run["cpu_seconds"] / wire * 1e9 for run in done]),
            "ratio": corpus.spread([loop[i] / run["seconds"] for i, run in enumerate(done)]),
            "product": corpus.spread([rate / _PROMISE_MB for rate in rates]),
            "peak_memory": done[-1]["peak_bytes"],
        }
    return {**result, "machine": corpus.machine()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--row-bytes", type=int, default=500)
    parser.add_argument("--bytes", type=int, default=3_000_000_000)
    parser.add_argument("--decoders", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    corpus.write_result(args.out, measure(args))


if __name__ == "__main__":
    main()
