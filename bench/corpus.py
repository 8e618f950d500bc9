"""What the benches have in common: seeded tables, a server, machine facts, peak memory."""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import psycopg
import pyarrow as pa
from kit.postgres import Database, Postgres

from gaussdecode import __version__

MAJOR: Final = 17
ROWS_PER_TRANSACTION: Final = 1000

# Ten mixed columns, about 165 bytes of pgoutput a row; fifty columns, about 1.2 kB.
_MIX: Final = (
    ("int8", "g"), ("int4", "(g::int8 * 7919) % 100000"), ("text", "md5(g::text)"),
    ("float8", "(g % 1000) / 7.0"), ("numeric(12,2)", "((g % 1000000) / 100.0)::numeric(12,2)"),
    ("timestamptz", "timestamptz '2026-01-01' + g * interval '1 ms'"), ("bool", "g % 3 = 0"),
    ("date", "date '2026-01-01' + (g % 365)::int"), ("text", "'category ' || g % 20"),
    ("int2", "(g % 30000)::int2"),
)  # fmt: skip
SHAPES: Final = {"narrow": 1, "wide": 5}
ROWS: Final = {"narrow": 600_000, "wide": 150_000}


def make_table(database: Database, shape: str) -> None:
    """Create the table of a shape."""
    columns = [
        f"c{index} {kind}" for index, (kind, _) in enumerate(list(_MIX) * SHAPES[shape], start=1)
    ]
    database.execute(f"CREATE TABLE public.{shape} (id int8, {', '.join(columns)})")


def fill_table(database: Database, shape: str, rows: int) -> None:
    """Insert rows, a thousand to a transaction."""
    values = ", ".join(value for _, value in list(_MIX) * SHAPES[shape])
    with database.connect() as session:
        for first in range(1, rows + 1, ROWS_PER_TRANSACTION):
            last = min(first + ROWS_PER_TRANSACTION - 1, rows)
            session.execute(
                f"INSERT INTO public.{shape} SELECT g, {values} "
                f"FROM generate_series({first}, {last}) g"
            )


def start_server() -> Postgres:
    """Start a durable server of the bench's major with the defaults that matter."""
    return Postgres(MAJOR, {"shared_buffers": "512MB", "synchronous_commit": "off"})


def peak_memory(pids: dict[str, int]) -> dict[str, int]:
    """Most resident bytes each process ever had."""
    result: dict[str, int] = {}
    for name, pid in pids.items():
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                result[name] = int(line.split()[1]) * 1024
    return result


def machine() -> dict[str, Any]:
    """Where and with what a result was made."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "psycopg": psycopg.__version__,
        "gaussdecode": __version__,
        "commit": commit,
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and range of the runs."""
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


def write_result(path: Path | None, result: dict[str, Any]) -> None:
    """Print a result as JSON, and keep it in a file if asked."""
    text = json.dumps(result, indent=2)
    print(text)
    if path is not None:
        path.write_text(text + "\n")
