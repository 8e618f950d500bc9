"""How fast does one core turn GaussDB's formats into the decoders' messages?

Translates the same payloads again and again, batched, in styles b, t and j, and prints the
median of nine runs, beside a plain copy of the same bytes in the same run: the ratio says what
is left to gain, whatever the machine is doing. Every column shape is known, as it is for all
rows but a table's first.

MB/s counts the bytes of the payloads per second of CPU time; ns/value is the time of one
column of one row.

    python bench/translate.py [--out FILE]
"""

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

import corpus
from kit import gausswire as gw
from kit.uneven import uneven

from gaussdecode.source.gaussdb.relations import GaussRelations
from gaussdecode.source.gaussdb.translate._translator import Translator
from gaussdecode.source.relations import WhiteList

RUNS: Final = 9
LOOPS: Final = 5
ROWS: Final = 400  # of a transaction
TRANSACTIONS: Final = 10
COLUMNS: Final = [
    gw.Column(b"id", 20, "bigint"),
    gw.Column(b"customer", 23, "integer"),
    gw.Column(b"note", 25, "text"),
    gw.Column(b"price", 701, "double precision"),
    gw.Column(b"amount", 1700, "numeric"),
    gw.Column(b"created_at", 1184, "timestamp with time zone"),
    gw.Column(b"is_paid", 16, "boolean"),
    gw.Column(b"day", 1082, "date"),
    gw.Column(b"city", 25, "text"),
    gw.Column(b"quantity", 21, "smallint"),
]


def value(column: gw.Column, rng: random.Random) -> bytes | None:
    """One value as the server prints it; None for NULL."""
    is_text = column.type_oid == 25
    text = uneven(rng, lambda chosen: even(column, chosen).decode(), is_text=is_text)
    return None if text is None else text.encode()


def even(column: gw.Column, rng: random.Random) -> bytes:
    """One value of the usual sort."""
    if column.type_oid == 25:
        return bytes(rng.choices(b"abcdefghij klmno'", k=rng.randrange(10, 60)))
    if column.type_oid == 1184:
        return b"2024-03-14 20:31:12.%06d+00" % rng.randrange(10**6)
    if column.type_oid == 16:
        return rng.choice((b"t", b"f"))
    if column.type_oid == 1082:
        return b"2024-03-%02d" % rng.randrange(1, 29)
    if column.type_oid == 701:
        return b"%.17g" % rng.uniform(-1e6, 1e6)
    if column.type_oid == 1700:
        return b"%.2f" % rng.uniform(0, 1e6)
    return b"%d" % rng.randrange(10 ** rng.randrange(1, 5))


def payloads_of(style: str, repeat: int, rng: random.Random) -> list[bytes]:
    """Some batches of inserts; every table's shape is in each."""
    columns = [
        column._replace(name=b"%b_%d" % (column.name, number)) if number else column
        for number in range(repeat)
        for column in COLUMNS
    ]
    stream = gw.ParallelStream(style, 1, gw.Wanted())
    bodies: list[bytes] = []
    for number in range(TRANSACTIONS):
        lsn = 1_000_000 * (number + 1)
        rows = [
            gw.Row(
                "I", lsn + index, b"public", b"orders",
                [(column, value(column, rng)) for column in columns], None,
            )
            for index in range(ROWS // repeat)
        ]  # fmt: skip
        sent = gw.Transaction(7, 8, lsn, lsn + 900_000, lsn + 900_072, 0, rows)
        bodies += stream.transaction(sent)
    bodies.append(stream.buffer.flush() or b"")
    return [body[gw.HEADER_BYTES :] for body in bodies if body]


def seconds(work: Callable[[], object]) -> list[float]:
    """CPU times of `RUNS` runs, after one that warms up."""
    work()
    times = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return times


def measure(style: str, repeat: int) -> dict[str, object]:
    """Translate one style of one table width."""
    payloads = payloads_of(style, repeat, random.Random(f"{style}{repeat}"))
    size = sum(map(len, payloads))
    translator = Translator(style.encode(), True, "UTF8")
    relations = GaussRelations(WhiteList())
    for payload in payloads:
        translator.feed_bytes(payload, 0, relations.define)
    target = bytearray(max(map(len, payloads)))

    def translate() -> None:
        for _ in range(LOOPS):
            translator.count_messages(payloads)

    def copy() -> None:
        for _ in range(LOOPS):
            for payload in payloads:
                memoryview(target)[: len(payload)] = payload

    times, anchor = seconds(translate), seconds(copy)
    typical, copied = median(times) / LOOPS, median(anchor) / LOOPS
    rows = TRANSACTIONS * (ROWS // repeat)
    return {
        "style": style,
        "columns": repeat * len(COLUMNS),
        "bytes_per_row": round(size / rows),
        "mb_per_second": round(size / typical / 1e6),
        "best_mb_per_second": round(size / (min(times) / LOOPS) / 1e6),
        "rows_per_second": round(rows / typical),
        "ns_per_value": round(typical * 1e9 / rows / repeat / len(COLUMNS), 2),
        "spread_percent": round(100 * (max(times) - min(times)) / median(times)),
        "copy_mb_per_second": round(size / copied / 1e6),
        "times_a_copy": round(typical / copied, 2),
    }


def main() -> None:
    """Measure all styles and both widths."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    results = [measure(style, repeat) for repeat in (1, 10) for style in "btj"]
    corpus.write_result(
        args.out,
        {"bench": "translate", "runs": RUNS, "results": results, "machine": corpus.machine()},
    )


if __name__ == "__main__":
    main()
