"""Merge one bucket of a table: apply change events to its rows.

Events are sorted by key and position. Resets divide the events of a key into *eras*. Each era has
*lives*, which begin with a whole row. Within a life a column that was not sent keeps its value. A row
is current if its event is the last of its key in the last era. Every other row is an interval that its
successor, or a reset, has closed. Rows whose key has no event pass unchanged. Works on whole columns,
without a loop over rows.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gaussdecode.spark.log.events import (
    ACTION,
    ENDS,
    FILL,
    KEY,
    MOVE,
    PUT,
    REMOVE,
    SUB,
    Reset,
    above,
    as_int64,
    base_events,
    closed_schema,
    order_values,
    row_keys,
    state_schema,
)
from gaussdecode.spark.log.schema import (
    NAMES_TYPE,
    OLD_PREFIX,
    RAW,
    RAW_TYPE,
    UNCHANGED,
    TableSchema,
)
from gaussdecode.spark.merge import multiset

Ints = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge.

    Attributes:
        current: rows of the bucket after the merge.
        closed: intervals that ended.
        unmatched: number of removals and updates of missing rows, and of inserts of existing ones.
    """

    current: pa.Table
    closed: pa.Table
    unmatched: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Delta:
    """The changes that a merge makes.

    Attributes:
        added: rows that are current now and were not before.
        closed: intervals that ended.
        gone: indices of rows of the base that are no longer current.
        unmatched: number of removals and updates of missing rows, and of inserts of existing ones.
    """

    added: pa.Table
    closed: pa.Table
    gone: Ints
    unmatched: int


@dataclasses.dataclass(frozen=True, slots=True)
class Sorted:
    """Events of a bucket in order of key and position.

    Attributes:
        table: the events, unsorted.
        index: row of `table`, per sorted event.
        code: number of its key, per sorted event.
        era: number of the first reset after it, per sorted event.
        action: its action, per sorted event.
    """

    table: pa.Table
    index: Ints
    code: Ints
    era: Ints
    action: Ints


def merge(
    base: pa.Table | None,
    events: pa.Table,
    resets: Sequence[Reset],
    schema: TableSchema,
    order: Sequence[str],
    *,
    has_all: bool = True,
) -> Merged:
    """Merge events into the rows of one bucket.

    Args:
        base: rows of the current state, in `state_schema`; None if there are none.
        events: events from `to_events`, in any order.
        resets: resets, in order.
        schema: schema version of all of them.
        order: columns that order events.
        has_all: `base` and the events include every existing row whose key has an event. Otherwise
            events without a row are not counted, except in tables without a key.
    """
    kept = None
    if base is not None and base.num_rows:
        found = row_keys(base, schema)
        if not resets:
            touched = pc.is_in(found, value_set=events.column(KEY).combine_chunks())
            kept = base.filter(pc.invert(touched))
            base, found = base.filter(touched), found.filter(touched)
        events = pa.concat_tables([base_events(base, found, schema), events])
    run = sort_events(events.combine_chunks(), resets, order)
    alive, ended, closers, unmatched = _matched(run, len(resets), schema, has_all=has_all)
    sources, unknown = fill_sources(run)
    current = take_rows(run, alive, sources, unknown, schema)
    closed = close_rows(run, ended, closers, sources, unknown, schema, resets)
    if kept is not None:
        current = pa.concat_tables([kept.select(current.column_names), current])
    return Merged(current, closed, unmatched)


def merge_delta(
    base: pa.Table, events: pa.Table, schema: TableSchema, order: Sequence[str], *, closes: bool
) -> Delta:
    """Merge events into the rows that they name, without rows that pass unchanged.

    Args:
        base: rows of the current state whose keys events name, in `state_schema`; columns that no
            event leaves out may be NULL unless rows are closed.
        events: events from `to_events`, in any order, without resets.
        schema: schema version of all of them.
        order: columns that order events.
        closes: return closed intervals too.
    """
    events = pa.concat_tables([base_events(base, row_keys(base, schema), schema), events])
    run = sort_events(events.combine_chunks(), (), order)
    alive, ended, closers, unmatched = _matched(run, 0, schema, has_all=True)
    if not closes:
        ended, closers = ended[:0], closers[:0]
    is_held = run.index[alive] < base.num_rows
    sources, unknown = fill_sources(run)
    return Delta(
        added=take_rows(run, alive[~is_held], sources, unknown, schema),
        closed=close_rows(run, ended, closers, sources, unknown, schema, ()),
        gone=np.setdiff1d(np.arange(base.num_rows), run.index[alive[is_held]]),
        unmatched=unmatched,
    )


def sort_events(events: pa.Table, resets: Sequence[Reset], order: Sequence[str]) -> Sorted:
    """Sort events, drop duplicates, and number their eras.

    Args:
        events: events, in any order.
        resets: resets, in order.
        order: columns that order events.
    """
    code = as_int64(events.column(KEY).combine_chunks().dictionary_encode().indices)
    positions, era = order_values(events, order), _eras(events, resets, order)
    sub, action = as_int64(events.column(SUB)), as_int64(events.column(ACTION))
    index = np.lexsort((sub, *reversed(positions), era, code))
    same = np.ones(len(index), dtype=np.bool_)
    for column in (code, era, *positions, sub):
        same[1:] &= column[index][1:] == column[index][:-1]
    if len(same):
        same[0] = False
    # A multiset's update may hold one position for two rows, but never twice one sub.
    index = index[~same]
    return Sorted(events, index, code[index], era[index], action[index])


def _eras(events: pa.Table, resets: Sequence[Reset], order: Sequence[str]) -> Ints:
    """Number of the first reset after each event."""
    era = np.full(events.num_rows, len(resets), dtype=np.int64)
    columns = order_values(events, [*order[:-1], "gd_n", order[-1]]) if resets else []
    for number in reversed(range(len(resets))):
        era[~above(columns, resets[number].place, inclusive=True)] = number
    return era


def _matched(
    run: Sorted, resets: int, schema: TableSchema, *, has_all: bool
) -> tuple[Ints, Ints, Ints, int]:
    if schema.key:
        return *_keyed(run, resets), _unmatched(run) if has_all else 0
    return multiset.match(run.code, run.era, run.action, resets)


def _keyed(run: Sorted, resets: int) -> tuple[Ints, Ints, Ints]:
    """Find current rows, ended rows, and the event that ended each.

    Returns:
        Sorted positions of current rows, of ended rows, and per ended row the position
        of the event that ended it, or -1 for the reset after its era.
    """
    count = len(run.index)
    is_put = run.action != REMOVE
    is_last = np.ones(count, dtype=np.bool_)
    is_last[:-1] = run.code[1:] != run.code[:-1]
    is_alive = is_last & is_put & (run.era == resets)
    ended = np.flatnonzero(is_put & ~is_alive)
    following = np.minimum(ended + 1, count - 1)
    by_next = ~is_last[ended] & (run.era[following] == run.era[ended])
    return np.flatnonzero(is_alive), ended, np.where(by_next, following, -1)


def _unmatched(run: Sorted) -> int:
    """Count changes that do not match an existing row.

    These are removals and updates that are the first event of a key without a row, and inserts of a key
    that has a row.
    """
    is_first = np.ones(len(run.index), dtype=np.bool_)
    is_first[1:] = (run.code[1:] != run.code[:-1]) | (run.era[1:] != run.era[:-1])
    found = int((is_first & ((run.action == REMOVE) | (run.action == FILL))).sum())
    follows = np.flatnonzero(~is_first & (run.action == PUT))
    follows = follows[run.action[follows - 1] != REMOVE]
    if len(follows):
        ops = run.table.column("gd_op").take(pa.array(run.index[follows]))
        found += pc.sum(pc.equal(ops, "I")).as_py() or 0
    return found


def fill_sources(run: Sorted) -> tuple[dict[str, Ints], dict[str, npt.NDArray[np.bool_]]]:
    """For columns that were not always sent, find the event that has their value.

    Returns:
        Per column, the sorted position of the event to take it from, and whether it is unknown even
        there.
    """
    unsent = _unsent(run)
    if not unsent:
        return {}, {}
    begins = np.ones(len(run.index), dtype=np.bool_)
    begins[1:] = (
        (run.code[1:] != run.code[:-1])
        | (run.era[1:] != run.era[:-1])
        | (run.action[:-1] == REMOVE)
    )
    begins |= (run.action == PUT) | (run.action == MOVE)
    here = np.arange(len(run.index), dtype=np.int64)
    sources = {
        name: np.maximum.accumulate(np.where(begins | ~missing, here, -1))
        for name, missing in unsent.items()
    }
    return sources, {name: unsent[name][sources[name]] for name in unsent}


def _unsent(run: Sorted) -> dict[str, npt.NDArray[np.bool_]]:
    """Which sorted events lack each column."""
    lists = run.table.column(UNCHANGED).combine_chunks()
    if lists.null_count == len(lists):
        return {}
    parents = as_int64(pc.list_parent_indices(lists))
    names = pc.list_flatten(lists)
    found = {}
    for name in pc.unique(names).to_pylist():
        missing = np.zeros(len(lists), dtype=np.bool_)
        missing[parents[pc.equal(names, name).to_numpy(zero_copy_only=False)]] = True
        found[name] = missing[run.index]
    return found


def take_rows(
    run: Sorted,
    at: Ints,
    sources: dict[str, Ints],
    unknown: dict[str, npt.NDArray[np.bool_]],
    schema: TableSchema,
) -> pa.Table:
    """Build rows from the sorted events, each column from the event that has its value."""
    target = state_schema(schema)
    own = pa.array(run.index[at])
    arrays = {}
    for field in target:
        index = own
        if field.name in sources:
            index = pa.array(run.index[sources[field.name][at]])
        if field.name not in {UNCHANGED, RAW}:
            arrays[field.name] = run.table.column(field.name).take(index)
    arrays[UNCHANGED] = _unknown_lists(at, unknown)
    arrays[RAW] = _raws(run, at, sources)
    return pa.table([arrays[name] for name in target.names], schema=target)


def _unknown_lists(at: Ints, unknown: dict[str, npt.NDArray[np.bool_]]) -> pa.Array:
    lists: dict[int, list[str]] = {}
    for name in sorted(unknown):
        for row in np.flatnonzero(unknown[name][at]).tolist():
            lists.setdefault(row, []).append(name)
    if not lists:
        return pa.nulls(len(at), NAMES_TYPE)
    return pa.array([lists.get(row) for row in range(len(at))], NAMES_TYPE)


def _raws(run: Sorted, at: Ints, sources: dict[str, Ints]) -> pa.Array:
    """Texts of values that did not fit, each from the event of its column."""
    raw = run.table.column(RAW).combine_chunks()
    if raw.null_count == len(raw):
        return pa.nulls(len(at), RAW_TYPE)
    held = pc.is_valid(raw).to_numpy(zero_copy_only=False)
    wanted = held[run.index[at]]
    for source in sources.values():
        wanted = wanted | held[run.index[source[at]]]
    result: list[list[tuple[str, str]] | None] = [None] * len(at)
    for row in np.flatnonzero(wanted).tolist():
        own = int(run.index[at[row]])
        texts = {
            name: text
            for name, text in (raw[own].as_py() or ())
            if not _is_old(name, run.table) and name not in sources
        }
        for name, source in sources.items():
            found = dict(raw[int(run.index[source[at[row]]])].as_py() or ())
            if name in found:
                texts[name] = found[name]
        result[row] = sorted(texts.items()) or None
    return pa.array(result, RAW_TYPE)


def _is_old(name: str, rows: pa.Table) -> bool:
    """Whether a text belongs to the old row; a column may itself be called ``old.x``."""
    return name.startswith(OLD_PREFIX) and name not in rows.column_names


def close_rows(
    run: Sorted,
    ended: Ints,
    closers: Ints,
    sources: dict[str, Ints],
    unknown: dict[str, npt.NDArray[np.bool_]],
    schema: TableSchema,
    resets: Sequence[Reset],
) -> pa.Table:
    """Build closed intervals: the ended rows with the stamps of the events that ended them."""
    rows = take_rows(run, ended, sources, unknown, schema)
    by_reset = pa.array(closers < 0)
    events = pa.array(run.index[np.maximum(closers, 0)]) if len(ended) else pa.array([], pa.int64())
    eras = run.era[ended]
    arrays = []
    for name, of in ENDS.items():
        stamp = f"gd_{name.removeprefix('gd_to_')}"
        ending = run.table.column(stamp).combine_chunks().take(events)
        if resets:
            stamps = pa.array([reset.stamps.get(stamp) for reset in resets], of)
            where = pa.array(np.minimum(eras, len(resets) - 1))
            ending = pc.if_else(by_reset, stamps.take(where), ending)
        arrays.append(ending)
    return pa.table([*arrays, *rows.columns], schema=closed_schema(schema))
