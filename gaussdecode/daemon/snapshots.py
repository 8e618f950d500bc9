"""Read existing rows while the daemon runs: one snapshotter per source.

Each reads in its own thread, with its own gate, ledger and list of tables, and knows nothing of the others.
With several sources each table is shown with its source.
"""

import dataclasses
from collections.abc import Callable

from gaussdecode.collect.snapshot_gate import Gate
from gaussdecode.collect.spool import Spool
from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.daemon.source_runtime import SourceRuntime
from gaussdecode.land.commitlog import CommitLog
from gaussdecode.land.snapshots import Json, SnapshotStore
from gaussdecode.land.writer import Writer
from gaussdecode.model.entry import CommitEntry
from gaussdecode.settings.sections import Config
from gaussdecode.snapshot.snapshotter import Snapshotter
from gaussdecode.snapshot.tablefilter import TableFilter


@dataclasses.dataclass(frozen=True, slots=True)
class OfSource:
    """The context of the snapshots of one source; see `snapshot.item.Context`.

    Attributes:
        pipeline: the parts that all sources share.
        runtime: the source.
    """

    pipeline: Pipeline
    runtime: SourceRuntime

    @property
    def source(self) -> str | None:
        """See `Context`."""
        return self.runtime.source

    @property
    def log(self) -> CommitLog | None:
        """See `Context`."""
        return self.pipeline.log

    @property
    def writer(self) -> Writer | None:
        """See `Context`."""
        return self.pipeline.writer

    @property
    def gate(self) -> Gate:
        """See `Context`."""
        return self.runtime.gate

    @property
    def snapshots(self) -> SnapshotStore:
        """See `Context`."""
        return self.runtime.snapshots

    @property
    def table_filter(self) -> TableFilter | None:
        """See `Context`."""
        return self.runtime.table_filter

    def spool(self) -> Spool:
        """See `Context`."""
        return self.pipeline.spool()

    def is_left_to_first(self, schema: str, name: str) -> bool:
        """See `Context`."""
        return self.runtime.is_left_to_first(schema, name)

    def restart_session(self) -> None:
        """See `Context`."""
        self.pipeline.restart_session()

    def snapshot_landed(self, entry: CommitEntry) -> None:
        """See `Context`."""
        self.pipeline.snapshot_landed(entry)

    def fail(self, error: BaseException) -> None:
        """See `Context`."""
        self.pipeline.fail(error)


class Snapshots:
    """Of all sources.

    Args:
        config: checked.
        pipeline: not yet running.
        on_finished: called with mode only, when every table of every source is done.
    """

    def __init__(
        self, config: Config, pipeline: Pipeline, on_finished: Callable[[], object]
    ) -> None:
        self._on_finished = on_finished
        self._open = set(config.members)  # with mode only: whose tables are not all done

        def finished(name: str) -> Callable[[], None]:
            return lambda: self._finished(name)

        self._each = [
            Snapshotter(member, OfSource(pipeline, pipeline.runtimes[name]), finished(name))
            for name, member in config.members.items()
        ]

    def _finished(self, name: str) -> None:
        self._open.discard(name)
        if not self._open:
            self._on_finished()

    def start(self) -> None:
        """Begin to look for work."""
        for one in self._each:
            one.start()

    def close(self) -> None:
        """Stop at the next possible place; finished chunks stay."""
        for one in self._each:
            one.stop()
        for one in self._each:
            one.close()

    def status(self) -> dict[str, Json]:
        """Progress by table, and what is left out altogether."""
        return {title: of for one in self._each for title, of in one.status().items()}

    def read(self) -> tuple[int, int]:
        """Rows and bytes read since the start."""
        rows, size = zip(*(one.read for one in self._each), strict=True)
        return sum(rows), sum(size)

    def faults(self) -> dict[str, str]:
        """By path, why a request of an operator's cannot be used."""
        return {path: why for one in self._each for path, why in one.faults.items()}

    def is_settled(self) -> bool:
        """Whether no table waits for its existing rows, as far as the sources were asked."""
        return all(one.is_settled for one in self._each)
