"""Memory goes back to the kernel."""

import pyarrow as pa
import pyarrow.parquet as pq

from gaussdecode.host.memory import give_back


def anonymous_bytes() -> int:
    """Memory of this process that no file has."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) * 1024


def test_what_encoding_took_goes_back() -> None:
    """Most of what the pool keeps after row groups were written."""
    rows = pa.table({"id": range(400_000), "text": [f"text {n}" for n in range(400_000)]})
    for _ in range(3):
        pq.write_table(rows, pa.BufferOutputStream(), compression="zstd")
    del rows
    before = anonymous_bytes()
    give_back()
    assert before - anonymous_bytes() > 10 << 20
