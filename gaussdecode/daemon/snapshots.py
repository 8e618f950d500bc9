"""Read existing rows while the daemon runs: one snapshotter per source.

Each reads in its own thread, with its own gate, ledger and list of tables, and knows nothing of the others.
With several sources each table is shown with its source.
"""

from collections.abc import Callable

from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.daemon.source_runtime import SourceRuntime
from gaussdecode.land.snapshots import Json
from gaussdecode.settings.sections import Config
from gaussdecode.snapshot.snapshotter import Snapshotter
from gaussdecode.snapshot.tablefilter import TableFilter


class OfSource:
    """The context of the snapshots of one source; see `snapshot.item.Context`.

    Args:
        pipeline: the parts that all sources share; its log is open.
        runtime: the source.
    """

    def __init__(self, pipeline: Pipeline, runtime: SourceRuntime) -> None:
        self._runtime = runtime
        self.source = runtime.source
        self.log = pipeline.log
        self.writer = pipeline.writer
        self.gate = runtime.gate
        self.snapshots = runtime.snapshots
        self.spool = pipeline.spool
        self.is_left_to_first = runtime.is_left_to_first
        self.restart_session = pipeline.restart_session
        self.snapshot_landed = pipeline.snapshot_landed
        self.fail = pipeline.fail

    @property
    def table_filter(self) -> TableFilter | None:
        """Of the newest session."""
        return self._runtime.table_filter


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
