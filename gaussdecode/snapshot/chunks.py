"""Read a large table in chunks while the stream goes on; see docs/adr/0050.

The state on disk is written when the table is divided. From then on a finished chunk need not be read again,
in whichever view the others are read. When all chunks are there, publications are held, a last view is
taken and the stream is read up to it. Rows whose keys changed since are left out of the chunks and read again.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from gaussdecode.collect import keyset
from gaussdecode.collect.snapshot_gate import Hold
from gaussdecode.host import lazy_pyarrow
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.failpoints import SnapshotStep
from gaussdecode.land.snapshots import DamagedChunkError, Json, SnapshotStore
from gaussdecode.model.landing import EntryKind
from gaussdecode.settings.landing_sections import KEY_PIECE_BYTES
from gaussdecode.snapshot.doubts import may_miss
from gaussdecode.snapshot.item import Wanted
from gaussdecode.snapshot.output import Output
from gaussdecode.snapshot.read import TableTask, parallel
from gaussdecode.snapshot.tools import Tools, key_names
from gaussdecode.source.export import Chunk, Leaf, TableChangedError, TableReader, TableShape, cut

ATTEMPTS: Final = 5  # a table that changes its shape so often is read at once
_KEYS_AT_ONCE: Final = 5000  # rows read again by one statement; arbitrary


class ChunkedTable:
    """One table that is being read.

    Args:
        tools: tools of the landing.
        item: the table.
    """

    def __init__(self, tools: Tools, item: Wanted) -> None:
        self._tools = tools
        self._item = item
        self._store = tools.store
        self._log = tools.log
        state = self._store.load(item.directory)
        if state is None or "fingerprint" not in state:
            state = {
                "where": item.where,
                "since_n": self._log.next_n - 1,
                "fingerprint": None,
                "request": item.request,
            }
            if tools.source is not None:
                state["timeline"] = self._timeline
        self._state = state
        self._needed: list[str] = []  # of changes

    @property
    def _timeline(self) -> int:
        """Of the source's server, as far as it has landed."""
        return self._log.positions[self._tools.source or self._log.source].timeline

    def take(self) -> None:
        """Read the missing chunks, then land all.

        Raises:
            HoldLostError: the session ended, or transactions on the server ran too long.
            SourceError: the table cannot be read, or the server failed.
            TableChangedError: it must be read again from the start.
        """
        while self._read():
            pass
        self._store.reach(SnapshotStep.SNAPSHOT_READ)
        self._finish()

    def _read(self) -> bool:
        """Read chunks in one view; gives whether some are left."""
        tools, item, store = self._tools, self._item, self._store
        limit = tools.config.snapshot.transaction_timeout
        with tools.view(limit) as view:
            deadline = time.monotonic() + limit
            with tools.reader() as reader:
                reader.begin(view)
                task = tools.task(reader, item)
                reader.end()
            self._fix_shape(task.shape)
            self._needed = keyset.needed_columns(key_names(task) or (), task.landed.schema)
            chunks = self._chunks(task.shape)
            left = self._left(chunks)
            done = len(chunks) - len(left)
            counts = tools.begin_progress(item, task, len(chunks), done)
            work = [(task, chunk, counts) for chunk in left]

            def take(task: TableTask, chunk: Chunk, rows: Iterator[pa.Table]) -> None:
                store.write_chunk(item.directory, chunk.number, task.landed.schema, rows)

            tools.readers().read_all(view, work, take, deadline)
            return bool(self._left(chunks))

    def _left(self, chunks: list[Chunk]) -> list[Chunk]:
        """The chunks that are not read yet."""
        found = self._store.chunks(self._item.directory)
        return [chunk for chunk in chunks if chunk.number not in found]

    def _fix_shape(self, shape: TableShape) -> None:
        """Cut the table; or see that it is still what was cut, and all its changes show."""
        state = self._state
        if state["fingerprint"] is None:
            state["fingerprint"] = shape.fingerprint
            state["pages"] = [leaf.pages for leaf in shape.leaves]
            state["chunk_pages"] = self._tools.chunk_pages
            self._store.save(self._item.directory, state)
            self._store.reach(SnapshotStep.SNAPSHOT_CUT)
        if shape.unseen is not None:
            self._tools.attempts[shape.table.title] = ATTEMPTS
            raise TableChangedError(
                f"table {shape.table.title}: {shape.unseen}; it is read at once"
            )
        if shape.fingerprint != state["fingerprint"]:
            raise TableChangedError(
                f"table {shape.table.title} was altered or rewritten while it was read; "
                "it is read again from the start"
            )

    def _chunks(self, shape: TableShape) -> list[Chunk]:
        return cut(_leaves_then(shape, self._state), int(self._state["chunk_pages"]))

    def _finish(self) -> None:
        """Hold, view, learn what changed, read that again, commit all."""
        tools, item = self._tools, self._item
        tools.progress[item.title].state = "landing"
        keys = keyset.Keys(tools.context.spool(), KEY_PIECE_BYTES)
        needed = {item.directory: self._needed}
        with contextlib.closing(keys), tools.held(needed) as (hold, view), tools.reader() as reader:
            with tools.reader() as nudger:
                tools.context.gate.reach(hold, view.lsn, nudger.nudge)
            reader.begin(view)
            task = tools.task(reader, item)
            self._fix_shape(task.shape)
            names = key_names(task)
            assert names is not None
            output = tools.output(item, task, view, int(self._state["since_n"]))
            try:
                self._gather_changed(keys, task, hold, names)
                self._read_again(reader, output, names, keys)
                reader.check_files(task.shape, range(len(task.shape.leaves)))
                reader.end()
                self._land_unchanged(output, self._chunks(task.shape), keys)
                tools.commit(hold, view, [output])
            except BaseException:
                output.abandon()
                raise
        self._store.drop(item.directory)

    def _gather_changed(
        self, keys: keyset.Keys, task: TableTask, hold: Hold, names: list[str]
    ) -> None:
        """Take in the keys of all rows that changed since the first chunk was read."""
        writer = self._tools.context.writer
        assert writer is not None
        writer.drain()
        directory = task.landed.directory
        columns = keyset.needed_columns(names, task.landed.schema)
        since_n = int(self._state["since_n"])
        if self._log.floor > since_n:
            raise TableChangedError("retention has removed changes that the snapshot needs")
        try:
            for path in self._changed_files(directory, since_n):
                for rows in _row_groups(self._log, path, columns):
                    keys.add(keyset.changed_keys(rows, names))
            for rows in hold.seen.pieces():
                keys.add(keyset.changed_keys(rows.select(columns), names))
        except (keyset.UnknownKeyError, KeyError, pa.ArrowInvalid) as error:
            self._tools.attempts[task.shape.table.title] = ATTEMPTS
            raise TableChangedError(
                f"table {task.shape.table.title}: changes do not show its key; it is read at once"
            ) from error

    def _changed_files(self, directory: str, since_n: int) -> Iterator[str]:
        """Path of every landed file with changes of the table."""
        source = self._tools.source
        if self._timeline != self._state.get("timeline", self._timeline):  # no entry says it
            raise TableChangedError("the server's timeline has changed since the first chunk")
        for entry in self._log.iterate(since_n + 1, self._log.next_n - 1):
            is_of_another = entry.extra.get("source", source) != source
            if may_miss(entry, directory) and not is_of_another:
                raise TableChangedError(
                    f"entry {entry.n} ({entry.kind}) came after the first chunk was read"
                )
            if entry.kind is EntryKind.DATA:
                files = (file for file in entry.files if file.source == source)
                yield from (file.path for file in files if file.table == directory)

    def _read_again(
        self, reader: TableReader, output: Output, names: list[str], keys: keyset.Keys
    ) -> None:
        """Read the rows of changed keys in the last view."""
        task, shape = output.task, output.task.shape
        indexes = [task.landed.names.index(name) for name in names]
        readers = self._tools.readers()
        for piece in keys.pieces(_KEYS_AT_ONCE):
            lines = reader.copy_keys(shape, indexes, keyset.array_texts(piece), task.where)
            output.land(
                # Keys that the server takes for equal need not be.
                rows.filter(keyset.is_changed(rows, piece))
                for rows in readers.decode(task, lines)
            )

    def _land_unchanged(self, output: Output, chunks: list[Chunk], keys: keyset.Keys) -> None:
        """Land the rows of the chunks that are still what they were."""
        store, paths = self._store, self._store.chunks(self._item.directory)
        jobs = [
            lambda path=paths[chunk.number]: output.land(_unchanged(store, path, keys))
            for chunk in chunks
        ]
        try:
            parallel(self._tools.config.landing.lanes, jobs)
        except DamagedChunkError as error:
            raise TableChangedError(f"{error}; the table is read again from the start") from error


def _leaves_then(shape: TableShape, state: Json) -> list[Leaf]:
    """Leaves with the sizes they had when the table was cut."""
    pairs = zip(shape.leaves, state["pages"], strict=True)
    return [dataclasses.replace(leaf, pages=pages) for leaf, pages in pairs]


def _unchanged(store: SnapshotStore, path: str, keys: keyset.Keys) -> Iterator[pa.Table]:
    """Rows of a chunk that have not changed."""
    return map(keys.without, store.read_chunk(path))


def _row_groups(log: CommitLog, path: str, columns: list[str]) -> Iterator[pa.Table]:
    """Read a landed file, one row group at a time."""
    with log.disk.files.open(path) as raw:
        file = lazy_pyarrow.pq.ParquetFile(raw)
        for index in range(file.num_row_groups):
            yield file.read_row_group(index, columns)
