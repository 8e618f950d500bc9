"""Load existing rows straight into a target: executors read them, at exact positions.

This process holds a view of the database and knows its position (`held`). Executors import it. Each reads
ranges of pages over its own connection into files below the target (`staging`). Tables are loaded from
these files as from a landed snapshot. A table's rows have the position of its view; an apply takes the
later changes from the stream.

Finished ranges stay, and views are no older than ``snapshot.transaction-timeout``. So a table's ranges may be
of several views: after this process was killed, or because the table is large. Then rows that changed since
the first view are read again in the last one (`catchup`). A table whose stream does not show all changes is
read in one view. A table that is altered or emptied meanwhile is read from the start.
"""

import collections
import contextlib
import dataclasses
import datetime as dt
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from gaussdecode.errors import ConfigError, GaussDecodeError, SourceError
from gaussdecode.land.names import DATA
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.words import counted
from gaussdecode.settings.sections import Config
from gaussdecode.snapshot import catchup
from gaussdecode.snapshot.held import Held, Server, hold
from gaussdecode.snapshot.item import Wanted
from gaussdecode.snapshot.ranges import (
    MOVING,
    Imported,
    RangeTask,
    Reading,
    read_ranges,
    shared,
)
from gaussdecode.snapshot.read import TableTask
from gaussdecode.snapshot.staging import Cut, Range, Staging, Standing
from gaussdecode.snapshot.tools import PAGE_BYTES, key_names, look_up
from gaussdecode.source.address import source_address
from gaussdecode.source.export import (
    CANCELLED,
    Chunk,
    OrderError,
    TableChangedError,
    TableReader,
    cut,
)
from gaussdecode.source.exporters import exporter_of
from gaussdecode.source.lookup import lookup_of
from gaussdecode.source.relations import WhiteList
from gaussdecode.spark.apply import make_run
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.place import Place
from gaussdecode.spark.merge.engine import Engine, LocalEngine
from gaussdecode.spark.merge.load import Loadable, load
from gaussdecode.spark.merge.options import Options, Progress
from gaussdecode.spark.merge.plan import Applied
from gaussdecode.spark.merge.run import Run
from gaussdecode.spark.target.failpoint import Step, reach
from gaussdecode.spark.target.store import DatabaseVersion, Target, utc_now

_ATTEMPTS: Final = 5  # of a table that changes while it is read; arbitrary
_TOLD_SECONDS: Final = 5.0  # between two lines of progress; arbitrary


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The tables to load, and the number of readers.

    Attributes:
        tables: ``schema.name``; None for all that the target has not.
        connections: connections that read at the same time.
        rate: bytes of COPY's text per second, of all together; None for no limit.
        wait: seconds for the landing to get to a position.
        options: options of the target.
    """

    tables: frozenset[str] | None
    connections: int
    rate: int | None
    wait: float
    options: Options


@dataclasses.dataclass(frozen=True, slots=True)
class Begun:
    """A table that is being read.

    Attributes:
        task: task as it was looked up in the present view.
        cut: into ranges.
        is_bound: all of it has to be read in one view.
    """

    task: TableTask
    cut: Cut
    is_bound: bool

    @property
    def table(self) -> str:
        """Its directory."""
        return self.task.landed.directory

    def chunks(self) -> list[Chunk]:
        """Its ranges; leaves have the sizes that they had when it was cut."""
        pairs = zip(self.task.shape.leaves, self.cut.pages, strict=True)
        leaves = [dataclasses.replace(leaf, pages=pages) for leaf, pages in pairs]
        return cut(leaves, self.cut.chunk_pages)


@dataclasses.dataclass(slots=True)
class Summary:
    """The loaded tables and their rows, and the entry from which an apply continues."""

    tables: int = 0
    rows: int = 0
    bytes: int = 0
    ranges: int = 0
    n: int = -1


class InitialLoad:
    """Loads the tables that a target has not.

    Args:
        engine: runs the tasks.
        config: configuration of the daemon, whose landing the target is made from; checked.
        landing: landing of that daemon: directory, or URL of its mirror.
        store: the target; nobody else writes it.
        wish: see `Wish`.
        progress: is told what is done.
    """

    def __init__(
        self,
        engine: Engine,
        config: Config,
        landing: Place,
        store: Target,
        wish: Wish,
        progress: Progress,
    ) -> None:
        self._root = landing
        self._engine = engine
        self._config = config
        self._store = store
        self._wish = wish
        self._progress = progress
        self._address = source_address(config).kept()
        self._exporter = exporter_of(config, self._address)
        self._staging = Staging.begin(store.root, landing)
        self._attempts: collections.Counter[str] = collections.Counter()
        self._bound: set[str] = set()
        self._summary = Summary()

    def run(self) -> Summary:
        """Load them, view after view.

        Raises:
            ConfigError: a table cannot be loaded.
            LandingError: the landing or the target is damaged, or the daemon does not get on.
            SourceError: the server failed, or a table changes again and again.
        """
        try:
            while self._round():
                pass
        except GaussDecodeError:
            if not self._staging.tables():  # nothing was begun, so nothing is left to be done
                self._staging.end()
            raise
        reach(Step.TABLES_LOADED)
        if self._wish.tables is None and self._store.database() is None:
            self._begin_database()
        self._staging.end()
        return self._summary

    # --- one view ----------------------------------------------------------------------------

    def _round(self) -> bool:
        """Read in one view, and load what is whole; gives whether something is left."""
        landing, place = self._place()
        here = landing.position(landing.entry(place.n))
        self._summary.n = place.n if self._summary.n < 0 else self._summary.n
        with self._view() as held:
            with self._exporter.open_reader(
                self._config.snapshot.statement_timeout, lambda: False
            ) as reader:
                reader.begin(held)
                wanted = self._wanted(reader)
                lsn = self._position(held, place, here.lsn, wanted)
                if not wanted or lsn is None:
                    return bool(wanted)
                view = Imported(held.name, lsn, place.epoch, dt.datetime.now(dt.UTC))
                begun = list(self._begin(reader, wanted, view, place._replace(csn=held.csn)))
                reader.end()
            if begun:
                self._progress(f"view at {Lsn(lsn)}: {counted(len(begun), 'table')} to load")
            self._read(view, begun)
            held.reach()
            reading = self._reading(view, self._wish.connections)
            found = [self._whole(reading, held, of) for of in begun]
        loadable = [of for of in found if of is not None]
        self._load(loadable)
        return len(loadable) < len(wanted)

    def _position(
        self, held: Held, place: Standing, boundary: int, wanted: Sequence[Wanted]
    ) -> int | None:
        """Where a view stands; None where another one has to be taken."""
        if not wanted:
            return None
        try:
            lsn = held.find(place.n, boundary, {item.directory for item in wanted})
        except (OrderError, TableChangedError) as error:
            self._count("", error.reason)
            self._progress(error.reason)
            return None
        if lsn < boundary:
            raise SourceError(
                f"the server's view is at {Lsn(lsn)}, before the landed {Lsn(boundary)}: check that the "
                "server is the daemon's and not a standby"
            )
        return lsn

    def _place(self) -> tuple[Landing, Standing]:
        landing = Landing(self._root)
        n = landing.last_n
        if n < 0:
            raise ConfigError(
                f"{landing.root} has no entry yet: start the daemon first, so that later changes land"
            )
        return landing, Standing(n, landing.position(landing.entry(n)).epoch)

    @contextlib.contextmanager
    def _view(self) -> Iterator[Held]:
        try:
            server = Server.of(self._config, self._address)
            with hold(server, self._root, self._wish.wait) as held:
                yield held
        except SourceError as error:
            if error.sqlstate != CANCELLED:
                raise
            seconds = self._config.snapshot.transaction_timeout
            raise SourceError(
                f"transactions on the server ran longer than {seconds:.0f} seconds "
                "(snapshot.transaction-timeout); run the command again when they have ended"
            ) from None

    def _reading(self, view: Imported, connections: int) -> Reading:
        """How each of so many connections reads."""
        at_once = 1 if isinstance(self._engine, LocalEngine) else connections
        config = shared(self._config, self._wish.rate, at_once)
        return Reading(config, self._address, view, self._staging.root)

    # --- which tables ------------------------------------------------------------------------

    def _wanted(self, reader: TableReader) -> list[Wanted]:
        """Published tables that are to be loaded and are not in the target; forgets all others."""
        white = WhiteList(self._config.decoding.white_tables)
        found = {
            table.title: Wanted(table)
            for table in reader.published()
            if white.allows(table.schema, table.name)
        }
        wished = self._wish.tables
        missing = sorted((wished or frozenset()) - found.keys())
        if missing:
            raise ConfigError(
                f"table {missing[0]} does not land: no configured publication has it, or it is not on "
                "decoding.white-table-list"
            )
        held = dict(self._held())
        # A renamed table is in the directory of another name; neither of the two is loaded.
        held |= {of.home.name: of for of in held.values() if of.home is not None}
        for title in sorted(wished or ()):
            state = held.get(found[title].directory)
            if state is not None and state.ignore_through is None:
                raise ConfigError(
                    f"{self._store.root} has {title} already, without its earlier rows. To add them: "
                    f"gaussdecode snapshot {self._config.path} --table {title!r}"
                )
        wanted = [
            item
            for title, item in sorted(found.items())
            if item.directory not in held and (wished is None or title in wished)
        ]
        for table in set(self._staging.tables()) - {item.directory for item in wanted}:
            self._staging.forget(table)
        return wanted

    def _begin(
        self, reader: TableReader, wanted: Sequence[Wanted], view: Imported, place: Standing
    ) -> Iterator[Begun]:
        """Cut tables, or go on with what was cut; not those that change at this moment."""
        catalog = lookup_of(self._config)
        try:
            for item in wanted:
                try:
                    task = look_up(self._config, catalog, reader, item)
                    if self._staging.cut(item.directory) is None:
                        reader.check_readable(task.shape)
                except SourceError as error:
                    if not isinstance(error, TableChangedError) and error.sqlstate not in MOVING:
                        raise
                    self._begin_again(item.directory, f"table {item.title}: {error.reason}")
                    reader.end()
                    reader.begin(view)
                    continue
                yield self._begin_table(task, view, place)
        finally:
            catalog.close()

    def _begin_table(self, task: TableTask, view: Imported, place: Standing) -> Begun:
        staging, table, shape = self._staging, task.landed.directory, task.shape
        is_bound = shape.unseen is not None or key_names(task) is None or table in self._bound
        there = staging.cut(table)
        if there is not None and not self._is_whole(table, there):
            read = staging.ranges(table, there.token)
            if there.fingerprint != _digest(task) or (is_bound and read):
                self._progress(f"{shape.table.title}: read again from the start")
                staging.forget(table)
                there = None
        if there is None:
            pages = tuple(leaf.pages for leaf in shape.leaves)
            size = max(1, self._config.snapshot.chunk_bytes // PAGE_BYTES)
            there = Cut(
                token=secrets.token_hex(6),
                title=shape.table.title,
                fingerprint=_digest(task),
                schema_id=task.landed.schema_id,
                pages=pages,
                chunk_pages=size,
                count=len(cut(shape.leaves, size)),
                views={},
            )
            staging.keep(table, there, task.record)
        there.views[view.lsn] = place
        staging.keep(table, there)
        return Begun(task, there, is_bound)

    def _is_whole(self, table: str, there: Cut) -> bool:
        """Whether all ranges are there, of one view."""
        ranges = self._staging.ranges(table, there.token)
        return len(ranges) == there.count and len({of.lsn for of in ranges.values()}) <= 1

    def _begin_again(self, table: str, why: str) -> None:
        """Forget what was read of a table.

        Raises:
            SourceError: it happened too often.
        """
        self._count(table, why)
        self._progress(f"{why}; it is read again from the start")
        self._staging.forget(table)

    def _count(self, what: str, why: str) -> None:
        """Count an attempt that came to nothing."""
        self._attempts[what] += 1
        if self._attempts[what] >= _ATTEMPTS:
            raise SourceError(
                f"{why}; tried {_ATTEMPTS} times. Run the command again when that has ended"
            )

    # --- reading -----------------------------------------------------------------------------

    def _read(self, view: Imported, begun: Sequence[Begun]) -> None:
        """Read the ranges that are missing, as many connections at a time as are wished for."""
        left = [
            (number, chunk)
            for number, of in sorted(enumerate(begun), key=lambda pair: not pair[1].is_bound)
            if not self._is_whole(of.table, of.cut)
            for there in [self._staging.ranges(of.table, of.cut.token)]
            for chunk in of.chunks()
            if chunk.number not in there
        ]
        if not left:
            return
        count = min(self._wish.connections, len(left))
        reading = self._reading(view, count)
        bound = frozenset(number for number, of in enumerate(begun) if of.is_bound)
        tasks = [
            RangeTask(
                reading,
                {number: (begun[number].task, begun[number].cut.token) for number, _ in work},
                work,
                self._config.snapshot.transaction_timeout,
                bound,
            )
            for work in (left[index::count] for index in range(count))
        ]
        with self._with_progress(begun):
            texts = self._engine.each(tasks, read_ranges)
        self._summary.ranges += len(left)
        changed: dict[int, str] = dict(map(json.loads, texts))
        for number, why in changed.items():
            self._begin_again(begun[number].table, why)

    @contextlib.contextmanager
    def _with_progress(self, begun: Sequence[Begun]) -> Iterator[None]:
        """Say how far it is, now and then."""
        total = sum(of.cut.count for of in begun)
        is_over = threading.Event()

        def tell() -> None:
            while not is_over.wait(_TOLD_SECONDS):
                ranges = (self._staging.ranges(of.table, of.cut.token) for of in begun)
                with contextlib.suppress(GaussDecodeError):  # the next time, then
                    rows = [one.rows for found in ranges for one in found.values()]
                    text = f"{len(rows)} of {total} ranges, {counted(sum(rows), 'row')}"
                    self._progress(text)

        teller = threading.Thread(target=tell, name="progress", daemon=True)
        teller.start()
        try:
            yield
        finally:
            is_over.set()
            teller.join()

    # --- whole tables ------------------------------------------------------------------------

    def _whole(self, reading: Reading, held: Held, of: Begun) -> Loadable | None:
        """A table all of whose rows stand at one position; None where it is not so far."""
        there = self._staging.cut(of.table)
        ranges = {} if there is None else self._staging.ranges(of.table, of.cut.token)
        if len(ranges) < of.cut.count:
            return None
        files: Sequence[Range] = list(ranges.values())
        lsn = max(one.lsn for one in files)
        if len({one.lsn for one in files}) > 1:
            wish = self._wish
            again = catchup.Again(
                self._engine, self._root, reading, of.task, of.cut, wish.wait, wish.connections
            )
            try:
                files, lsn = again.finish(ranges), reading.view.lsn
            except catchup.UnknownChangesError as error:
                self._bound.add(of.table)
                self._begin_again(of.table, str(error))
                return None
            except TableChangedError as error:
                self._begin_again(of.table, error.reason)
                return None
        place = of.cut.views[lsn]
        try:
            held.confirm(of.table, place, lsn)
        except (OrderError, TableChangedError) as error:
            self._begin_again(of.table, error.reason)
            return None
        return Loadable(
            table=of.table,
            schema_id=of.cut.schema_id,
            n=place.n,
            position=(place.epoch, lsn),
            files=tuple(
                (f"{DATA}/{of.table}/{one.path.name}", one.rows, one.bytes)
                for one in files
                if one.rows
            ),
        )

    def _load(self, loadable: Sequence[Loadable]) -> None:
        """Load tables, and forget what was read of them."""
        if not loadable:
            return
        done = load(self._run(), Landing(self._staging.root), loadable)
        summary = self._summary
        summary.tables += len(loadable)
        summary.rows += done.rows
        summary.bytes += done.bytes_written
        for of in loadable:
            self._staging.forget(of.table)

    def _begin_database(self) -> None:
        """Say that an apply need not look at what landed before; no table shows before it does."""
        landing = Landing(self._root)
        n = min((state.n for state in self._held().values()), default=self._summary.n)
        where = landing.position(landing.entry(n))
        self._store.commit_database(
            DatabaseVersion(
                k=1, n=n, tables={}, is_complete=True,
                epoch=where.epoch, lsn=where.lsn, csn=where.csn, created=utc_now(),
                hash=landing.hash_at(n),
            )
        )  # fmt: skip

    def _held(self) -> dict[str, Applied]:
        """How far the tables are that the target has."""
        return self._run().held()

    def _run(self) -> Run:
        """What loads tables from the files that were read."""
        staged = Landing(self._staging.root)
        return make_run(self._engine, staged, self._store, self._wish.options, self._progress)


def _digest(task: TableTask) -> str:
    return hashlib.sha256(task.shape.fingerprint.encode()).hexdigest()
