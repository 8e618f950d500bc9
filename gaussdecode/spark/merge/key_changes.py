"""Resolve updates that change a key and leave out columns, whose values are under the old key.

Buckets are merged separately, and the old key may be in another bucket. So the keys that such updates
connect are handled first: their few rows and all their events are replayed one by one, and each
update that changes a key gets its missing values. After that every bucket is complete. With REPLICA
IDENTITY FULL, and without out-of-line values, there is nothing to do.

Rejected: merging connected buckets in one task (a few hundred such updates connect all of them) and
looking the value up in the current rows only (it misses changes of the same run).
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.spark.log.events import ACTION, FILL, KEY, MOVE, REMOVE, SUB, Reset, order_values
from gaussdecode.spark.log.schema import NAMES_TYPE, RAW, RAW_TYPE, UNCHANGED, TableSchema
from gaussdecode.spark.merge.merge import sort_events

Source = dict[str, int]  # which event has the value of a column; absent: itself


def needs_resolving(events: pa.Table) -> pa.Array:
    """Which events change a key and lack values."""
    is_move = pc.equal(events.column(ACTION), MOVE)
    return pc.and_(is_move, pc.is_valid(events.column(UNCHANGED))).combine_chunks()


def edges(events: pa.Table, order: Sequence[str]) -> list[tuple[bytes, bytes]]:
    """Old and new key of every such update."""
    unresolved = events.filter(needs_resolving(events))
    if not unresolved.num_rows:
        return []
    left = events.filter(pc.equal(events.column(ACTION), REMOVE))
    gone = dict(zip(_positions(left, order), left.column(KEY).to_pylist(), strict=True))
    return [
        (gone[position], key)
        for position, key in zip(
            _positions(unresolved, order), unresolved.column(KEY).to_pylist(), strict=True
        )
    ]


def components(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, int]:
    """Number the sets of connected keys, from 0."""
    parent: dict[bytes, bytes] = {}

    def root(key: bytes) -> bytes:
        parent.setdefault(key, key)
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    for old, new in pairs:
        parent[root(old)] = root(new)
    numbers: dict[bytes, int] = {}
    return {key: numbers.setdefault(root(key), len(numbers)) for key in list(parent)}


def resolve(
    events: pa.Table, resets: Sequence[Reset], schema: TableSchema, order: Sequence[str]
) -> pa.Table:
    """Give key-changing updates their missing values.

    Args:
        events: all events of the connected keys, their current rows included.
        resets: resets, in order.
        schema: schema version of the events.
        order: columns that order events.

    Returns:
        The events whose `needs_resolving` was true; values that no event has stay listed in
        ``gd_unchanged``.
    """
    events = events.combine_chunks()
    run = sort_events(events, resets, order)
    era = dict(zip(run.index.tolist(), run.era.tolist(), strict=True))
    return _take(events, _sources(events, era, _positions(events, order)), schema)


def _sources(
    events: pa.Table, era: dict[int, int], positions: list[tuple[int, ...]]
) -> list[tuple[int, Source]]:
    """Replay events one by one; give each key change with the events that have its values."""
    alive: dict[bytes, tuple[int, int, Source]] = {}
    leaving: dict[tuple[int, ...], tuple[int, Source]] = {}
    subs = events.column(SUB).to_pylist()
    actions, row_keys = events.column(ACTION).to_pylist(), events.column(KEY).to_pylist()
    unchanged = events.column(UNCHANGED).to_pylist()
    resolved: list[tuple[int, Source]] = []
    for at in sorted(era, key=lambda i: (era[i], positions[i], subs[i])):
        key, action = row_keys[at], actions[at]
        before = alive.get(key)
        if before is not None and before[0] != era[at]:
            before = None
        if action == REMOVE:
            alive.pop(key, None)
            if before is not None:
                leaving[positions[at]] = before[1:]
            continue
        held = None
        if action == MOVE:
            held = leaving.get(positions[at])
        elif action == FILL and before is not None:
            held = before[1:]
        source: Source = {}
        if held is not None:
            source = {name: held[1].get(name, held[0]) for name in unchanged[at] or ()}
        alive[key] = (era[at], at, source)
        if action == MOVE and unchanged[at]:
            resolved.append((at, source))
    return resolved


def _take(events: pa.Table, resolved: list[tuple[int, Source]], schema: TableSchema) -> pa.Table:
    rows = np.array([at for at, _ in resolved], dtype=np.int64)
    taken = events.take(pa.array(rows))
    if not resolved:
        return taken
    unchanged, raws = events.column(UNCHANGED).to_pylist(), events.column(RAW).to_pylist()
    names = {name for _, source in resolved for name in source}
    for name in names & set(schema.names):
        index = pa.array([source.get(name, at) for at, source in resolved])
        place = taken.column_names.index(name)
        taken = taken.set_column(place, taken.schema.field(name), events.column(name).take(index))
    left, texts = [], []
    for at, source in resolved:
        unknown = [n for n in unchanged[at] if n not in source or n in (unchanged[source[n]] or ())]
        left.append(unknown or None)
        own = {name: text for name, text in (raws[at] or ()) if name not in source}
        for name, found in source.items():
            own.update({k: v for k, v in (raws[found] or ()) if k == name})
        texts.append(sorted(own.items()) or None)
    for name, values, of in ((UNCHANGED, left, NAMES_TYPE), (RAW, texts, RAW_TYPE)):
        place = taken.column_names.index(name)
        taken = taken.set_column(place, taken.schema.field(name), pa.array(values, of))
    return taken


def _positions(events: pa.Table, order: Sequence[str]) -> list[tuple[int, ...]]:
    columns = [values.tolist() for values in order_values(events, order)]
    return list(zip(*columns, strict=True))
