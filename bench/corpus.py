"""What the benches have in common: seeded tables, a server, machine facts, results."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import psycopg
import pyarrow as pa
from kit.postgres import Database, Postgres
from kit.uneven import uneven_sql

from gaussdecode import __version__

MAJOR: Final = 17
_LEAST_WAIT: Final = 0.02
ROWS_PER_TRANSACTION: Final = 1000

# Ten mixed columns, about 165 bytes of pgoutput a row; fifty columns, about 1.2 kB.
_MIX: Final = (
    ("int8", "g"), ("int4", "(g::int8 * 7919) % 100000"), ("text", "md5(g::text)"),
    ("float8", "(g % 1000) / 7.0"), ("numeric(12,2)", "((g % 1000000) / 100.0)::numeric(12,2)"),
    ("timestamptz", "timestamptz '2026-01-01' + g * interval '1 ms'"), ("bool", "g % 3 = 0"),
    ("date", "date '2026-01-01' + (g % 365)::int"), ("text", "'category ' || g % 20"),
    ("int2", "(g % 30000)::int2"),
)  # fmt: skip
SHAPES: Final = ("narrow", "wide", "changes", "small")
ROWS: Final = {"narrow": 600_000, "wide": 150_000, "changes": 300_000, "small": 300_000}
_WIDTHS: Final = {"wide": 5}

# What a thousand changes of the shape `changes` are made of; each row is touched once.
_UPDATES: Final = 600
_DELETES: Final = 200
_KEY_CHANGES: Final = 50
_TOUCHED: Final = _UPDATES + _DELETES + _KEY_CHANGES
_MOVED: Final = 1_000_000_000  # rows that change their key go there; new ones after


def _columns(shape: str) -> list[tuple[str, str]]:
    mixed = list(_MIX) * _WIDTHS.get(shape, 1)
    return [(kind, uneven_sql(value, is_text=kind == "text")) for kind, value in mixed]


def make_table(database: Database, shape: str, rows: int) -> None:
    """Create the table of a shape, with what must be there before `rows` changes of it."""
    columns = [f"c{index} {kind}" for index, (kind, _) in enumerate(_columns(shape), start=1)]
    key = " PRIMARY KEY" if shape == "changes" else ""
    database.execute(f"CREATE TABLE public.{shape} (id int8{key}, {', '.join(columns)})")
    if shape == "changes":
        there = -(-rows // ROWS_PER_TRANSACTION) * _TOUCHED
        database.execute(_insert(shape, "1", str(there)))
        database.execute(f"VACUUM ANALYZE public.{shape}")


def fill_table(database: Database, shape: str, rows: int) -> None:
    """Change `rows` rows, a thousand to a transaction; of `small` one to three."""
    if shape == "small":
        database.execute(_small_transactions(shape, rows))
        return
    with database.connect() as session:
        for first in range(1, rows + 1, ROWS_PER_TRANSACTION):
            last = min(first + ROWS_PER_TRANSACTION - 1, rows)
            if shape != "changes":
                session.execute(_insert(shape, str(first), str(last)))
                continue
            with session.transaction():
                for statement in _changes(shape, first // ROWS_PER_TRANSACTION, last - first + 1):
                    session.execute(statement)


def _insert(shape: str, first: str, last: str) -> str:
    values = ", ".join(value for _, value in _columns(shape))
    return f"INSERT INTO public.{shape} SELECT g, {values} FROM generate_series({first}, {last}) g"


def _changes(shape: str, block: int, count: int) -> list[str]:
    """Statements that change so many rows: updates, deletes, key changes, new rows."""
    first = block * _TOUCHED
    steps = [
        (_UPDATES, f"UPDATE public.{shape} SET c2 = c2 + 1, c3 = md5(c3)"),
        (_DELETES, f"DELETE FROM public.{shape}"),
        (_KEY_CHANGES, f"UPDATE public.{shape} SET id = id + {_MOVED}"),
    ]
    statements = []
    for most, statement in steps:
        taken = min(most, count)
        statements.append(f"{statement} WHERE id BETWEEN {first + 1} AND {first + taken}")
        first += taken
        count -= taken
    start = 2 * _MOVED + block * ROWS_PER_TRANSACTION
    return [*statements, _insert(shape, str(start + 1), str(start + count))]


def _small_transactions(shape: str, rows: int) -> str:
    """Transactions of one, two, three, one ... rows, made by the server itself."""
    return f"""
        DO $$
        DECLARE low int8 := 1; high int8; number int := 0;
        BEGIN
            WHILE low <= {rows} LOOP
                high := least(low + number % 3, {rows});
                {_insert(shape, "low", "high")};
                COMMIT;
                low := high + 1; number := number + 1;
            END LOOP;
        END $$"""


def drop_slot(database: Database, name: str) -> None:
    """Drop a slot that its consumer is leaving, so that it does not hold WAL any more."""
    with database.connect() as session:
        while session.execute(
            "SELECT 1 FROM pg_replication_slots WHERE slot_name = %s AND active", [name]
        ).fetchone():
            time.sleep(0.05)
        session.execute("SELECT pg_drop_replication_slot(%s)", [name])


def start_server() -> Postgres:
    """Start a durable server of the bench's major with the defaults that matter."""
    return Postgres(MAJOR, {"shared_buffers": "512MB", "synchronous_commit": "off"})


def wait_until_done(share: Callable[[], float], began: float) -> None:
    """Ask how much of the work is done until all is, rarely at first.

    Asking costs the daemon CPU time that is measured.

    Args:
        share: 0 to 1 or more.
        began: when the work began, `time.perf_counter`.
    """
    while (done := share()) < 1:
        passed = time.perf_counter() - began
        left = passed / done - passed if done > 0 else 0.0
        time.sleep(max(_LEAST_WAIT, min(left / 2, 1.0)))


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
        "libpq": psycopg.pq.version(),
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
