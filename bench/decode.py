"""How fast does one core turn pgoutput text into columns?

Decodes the same raw batches again and again and prints the median of nine runs, beside
pyarrow.csv reading the same values (one thread), which is a fair C++ anchor: it also
parses text into Arrow columns, but has neither framing nor NULL markers nor exact decimals.

MB/s counts the bytes of the messages per second of CPU time; ns/value is the time of one
column of one row.

    python bench/decode.py [--out FILE]
"""

import argparse
import csv as plain_csv
import io
import random
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import corpus
import pyarrow as pa
from kit import wire
from kit.uneven import uneven
from pyarrow import csv

from gaussdecode._wire import BatchDecoder
from gaussdecode.model.types import ColumnType, Kind

RUNS = 9
BATCH_BYTES = 1 << 20
MIXED: list[tuple[ColumnType, pa.DataType]] = [
    (ColumnType(Kind.INT64), pa.int64()),
    (ColumnType(Kind.INT32), pa.int32()),
    (ColumnType(Kind.STRING), pa.string()),
    (ColumnType(Kind.FLOAT64), pa.float64()),
    (ColumnType(Kind.DECIMAL, precision=12, scale=2), pa.decimal128(12, 2)),
    (ColumnType(Kind.TIMESTAMPTZ), pa.timestamp("us", "UTC")),
    (ColumnType(Kind.BOOL), pa.bool_()),
    (ColumnType(Kind.DATE), pa.date32()),
    (ColumnType(Kind.STRING), pa.string()),
    (ColumnType(Kind.INT16), pa.int16()),
]


def value(kind: Kind, rng: random.Random) -> str | None:
    """One value as the server writes it; None for NULL."""
    return uneven(rng, lambda chosen: even(kind, chosen), is_text=kind is Kind.STRING)


def even(kind: Kind, rng: random.Random) -> str:
    """One value of the usual sort."""
    if kind is Kind.BOOL:
        return rng.choice("tf")
    if kind in (Kind.INT16, Kind.INT32, Kind.INT64):
        return str(rng.randrange(10 ** rng.randrange(1, {2: 5, 3: 10, 4: 13}[kind])) // 4)
    if kind is Kind.FLOAT64:
        return repr(rng.uniform(-1e6, 1e6))
    if kind is Kind.DECIMAL:
        return f"{rng.randrange(10**8) / 100:.2f}"
    if kind is Kind.DATE:
        return f"20{rng.randrange(10, 40)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
    if kind is Kind.TIMESTAMPTZ:
        clock = f"{rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}"
        return f"{even(Kind.DATE, rng)} {clock}.{rng.randrange(1, 10**6):06}+00"
    return "".join(rng.choices("abcdefghij klmno", k=rng.randrange(4, 24)))


def rows_of(kinds: Sequence[Kind], rng: random.Random) -> list[list[str | None]]:
    """Rows for about one raw batch."""
    rows: list[list[str | None]] = []
    size = 0
    while size < BATCH_BYTES:
        rows.append([value(kind, rng) for kind in kinds])
        size += 12 + sum(len(text or "") + 5 for text in rows[-1])
    return rows


def seconds(work: Callable[[], object]) -> list[float]:
    """CPU times of `RUNS` runs, after one that warms up; other processes disturb them less."""
    work()
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return times


def measure(name: str, repeat: int) -> dict[str, object]:
    """Decode one shape of table and read the same values as CSV."""
    rng = random.Random(name)
    columns = MIXED * repeat
    rows = rows_of([held.kind for held, _ in columns], rng)
    messages = [wire.insert(row) for row in rows]
    raw = wire.raw_batch(messages)
    decoder = BatchDecoder()
    decoder.decode_bytes(wire.raw_batch([], [wire.relation([held for held, _ in columns])]))
    loops = 20

    def decode() -> None:
        for _ in range(loops):
            decoder.decode_bytes(raw)

    written = io.StringIO()
    plain_csv.writer(written, lineterminator="\n").writerows(rows)
    text = written.getvalue().encode()
    names = [f"c{index}" for index in range(len(columns))]
    options = csv.ConvertOptions(
        column_types=dict(zip(names, (arrow for _, arrow in columns), strict=True)),
        true_values=["t"], false_values=["f"],
    )  # fmt: skip
    read = csv.ReadOptions(use_threads=False, column_names=names)
    parse = csv.ParseOptions(newlines_in_values=True)
    times = seconds(decode)
    anchor = seconds(lambda: csv.read_csv(io.BytesIO(text), read, parse, options))
    typical = median(times) / loops
    wire_bytes = sum(len(message) + struct.calcsize("=I") for message in messages)
    return {
        "shape": name,
        "columns": len(columns),
        "bytes_per_row": round(wire_bytes / len(rows)),
        "mb_per_second": round(wire_bytes / typical / 1e6),
        "best_mb_per_second": round(wire_bytes / (min(times) / loops) / 1e6),
        "rows_per_second": round(len(rows) / typical),
        "ns_per_value": round(typical * 1e9 / len(rows) / len(columns), 2),
        "spread_percent": round(100 * (max(times) - min(times)) / median(times)),
        "csv_rows_per_second": round(len(rows) / median(anchor)),
        "times_csv": round(len(rows) / typical / (len(rows) / median(anchor)), 2),
    }


def main() -> None:
    """Measure both shapes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results = {shape: measure(shape, repeat) for shape, repeat in (("narrow", 1), ("wide", 5))}
    corpus.write_result(
        args.out, {"bench": "decode", "runs": RUNS, **results, "machine": corpus.machine()}
    )


if __name__ == "__main__":
    main()
