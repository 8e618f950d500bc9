"""What `check.py` measures by: the same text made into Parquet by pyarrow alone.

CSV of ten mixed columns is read by one thread, written as Parquet with zstd, and copied once:
like landing, a mix of parsing, encoding, compressing and touching memory, so that a slower
machine, or a busy neighbour, makes both dearer by about the same.
"""

import csv as plain_csv
import io
import random
import time
from collections.abc import Callable
from typing import Final

import decode
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

ROWS: Final = 3000  # few milliseconds
_TIMES: Final = 25


def make_work() -> Callable[[], None]:
    """Prepare the work; each call does it once, in the thread that calls."""
    rng = random.Random("base")
    kinds = [held.kind for held, _ in decode.MIXED]
    rows = [[decode.value(kind, rng) for kind in kinds] for _ in range(ROWS)]
    written = io.StringIO()
    plain_csv.writer(written, lineterminator="\n").writerows(rows)
    text = written.getvalue().encode()
    names = [f"c{index}" for index in range(len(kinds))]
    types = dict(zip(names, (arrow for _, arrow in decode.MIXED), strict=True))
    convert = csv.ConvertOptions(column_types=types, true_values=["t"], false_values=["f"])
    read = csv.ReadOptions(use_threads=False, column_names=names)
    parse = csv.ParseOptions(newlines_in_values=True)

    def work() -> None:
        table = csv.read_csv(io.BytesIO(text), read, parse, convert)
        pq.write_table(table, pa.BufferOutputStream(), compression="zstd", use_dictionary=False)
        bytearray(text)

    work()
    return work


def seconds_per_row(work: Callable[[], None]) -> float:
    """CPU seconds that the work takes now."""
    began = time.process_time()
    for _ in range(_TIMES):
        work()
    return (time.process_time() - began) / _TIMES / ROWS
