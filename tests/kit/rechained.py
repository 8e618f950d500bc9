"""Change the commit log of a landing in a test: entries are put in or taken out, and hashed anew."""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gaussdecode.model.entry import FIRST_PREVIOUS, CommitEntry
from gaussdecode.model.landing import EntryKind, Position
from gaussdecode.spark.log.landing import Landing


def read(root: Path) -> list[CommitEntry]:
    """All entries."""
    of = Landing(root)
    return list(of.entries(of.first_n, of.last_n))


def write(root: Path, entries: Sequence[CommitEntry]) -> list[CommitEntry]:
    """Replace the log; entries are numbered from 0."""
    shutil.rmtree(root / "commits")
    (root / "commits").mkdir()
    return append(root, entries, FIRST_PREVIOUS, 0)


def append(
    root: Path, entries: Sequence[CommitEntry], previous: str, first: int
) -> list[CommitEntry]:
    """Add entries to a log that ends with an entry of a hash."""
    found = []
    for n, entry in enumerate(entries, first):
        made = dataclasses.replace(entry, n=n, previous=previous, hash="").sealed()[0]
        path = root / "commits" / f"{n:020d}.json"
        path.with_suffix(".tmp").write_bytes(made.to_bytes())
        path.with_suffix(".tmp").rename(path)
        previous = made.hash
        found.append(made)
    return found


def note(like: CommitEntry, kind: EntryKind, extra: dict[str, Any]) -> CommitEntry:
    """An entry without files, at the position of another one."""
    return CommitEntry(
        n=0, kind=kind, previous=FIRST_PREVIOUS, positions=like.positions,
        committed_time=like.committed_time, mtime_ms=like.mtime_ms, extra=extra,
    )  # fmt: skip


def moved(entry: CommitEntry, *, epoch: int = 0, lsn: int | None = None) -> CommitEntry:
    """The entry so many epochs later, perhaps at another LSN."""
    change: Callable[[Any], Any] = lambda of: dataclasses.replace(  # noqa: E731
        of, epoch=of.epoch + epoch, lsn=of.lsn if lsn is None else lsn
    )
    return dataclasses.replace(
        entry, positions={name: change(of) for name, of in entry.positions.items()}
    )


def fill(root: Path, sizes: Sequence[int]) -> int:
    """Add an entry with transactions of so many rows of ``public.items``; gives the LSN of its end."""
    of = read(root)
    like = next(
        entry for entry in reversed(of) if any(f.table == "public.items" for f in entry.files)
    )
    last = of[-1]
    ((source, position),) = last.positions.items()
    first = position.lsn + 8
    lsns = np.repeat(first + 8 * np.arange(len(sizes)), sizes)
    seqs = np.concatenate([np.arange(size) for size in sizes])
    chance = np.random.default_rng(5)
    texts = chance.bytes(10 * len(seqs)).hex(" ", 10).split()
    made = []
    for file in like.files:
        if file.table not in {"public.items", "gd_transactions"}:
            continue
        rows = pq.read_table(root / file.path, partitioning=None).slice(0, 1)
        is_items = file.table == "public.items"
        count = len(seqs) if is_items else len(sizes)
        table = rows.take(np.zeros(count, np.int64))
        lsn = lsns if is_items else first + 8 * np.arange(len(sizes))
        changed: dict[str, Any] = {"gd_lsn": lsn}
        if is_items:
            text = next(name for name in table.column_names if name in {"sku", "article"})
            changed |= {"gd_seq": seqs, "order_id": seqs % 1000, text: texts}
            changed["gd_op"] = ["I"] * count
        for name, values in changed.items():
            at = table.column_names.index(name)
            typed = pa.array(values).cast(table.schema.field(at).type)
            table = table.set_column(at, table.schema.field(at), typed)
        path = f"data/{file.table}/gd_date=2026-11-27/filled-{last.n}.parquet"
        pq.write_table(table, root / path)
        made.append(
            dataclasses.replace(
                file, path=path, rows=count, bytes=(root / path).stat().st_size,
                ops={"I": count} if is_items else {},
                first=Position(int(lsn[0]), 0), last=Position(int(lsn[-1]), 0),
            )
        )  # fmt: skip
    end = int(lsns[-1])
    entry = dataclasses.replace(
        like, files=tuple(made), hidden=tuple(f".gd-f-{n}" for n in range(len(made))),
        extra={"in_order": True},
        positions={source: dataclasses.replace(position, lsn=end)},
    )  # fmt: skip
    append(root, [entry], last.hash, last.n + 1)
    return end
