"""Who runs the tasks: Spark, or this process.

Both give the same result: the tasks are plain functions over descriptions. The one in this
process needs no Java; it is for small landings and for tests.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

import pyarrow as pa

from gaussdecode.errors import from_record
from gaussdecode.spark.merge.sizing import labels

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = TypeVar("Task")
DRIVER_BYTES: Final = "spark.gaussdecode.driverBytes"
"""Setting of a session: see `SparkEngine.for_bytes`."""
_DRIVER_BYTES: Final = 128 << 20
_OURS: Final = re.compile(r"^\s*gaussdecode\.errors\.(\w+): (.+)$", re.MULTILINE)
Grouped = Iterator[tuple[int, bytes]]
Said = TypeVar("Said")
Step = tuple[Callable[[int, Sequence[bytes]], Said], Mapping[int, int]]
"""How to reduce a group, and the task that does, from 0, by group; 0 where none is given."""
Steps = tuple[Step[Grouped], Step[list[str]]]
Mapper = Callable[[Task], Grouped]

_GROUP: Final = ("gd_task", "gd_group")
_PAYLOADS: Final = "gd_task bigint, gd_group bigint, payload binary"


@dataclasses.dataclass(frozen=True, slots=True)
class _TaskOf:
    """The label of the task that reduces a group."""

    shares: Mapping[int, int]
    labels: tuple[int, ...]

    @classmethod
    def of(cls, shares: Mapping[int, int]) -> Self:
        """Of as many tasks as groups are shared out to."""
        return cls(dict(shares), labels(max(shares.values(), default=0) + 1))

    def __call__(self, group: int) -> int:
        return self.labels[self.shares.get(group, 0)]


class Engine(Protocol):
    """Runs tasks."""

    def for_bytes(self, landed: int, held: int) -> "Engine":
        """What runs tasks that read so many bytes of changes and rows."""

    def each(self, tasks: Sequence[Task], run: Callable[[Task], Iterator[str]]) -> list[str]:
        """Run every task; give all they say."""

    def grouped(self, tasks: Sequence[Task], run: Mapper[Task], step: Step[list[str]]) -> list[str]:
        """Run every task, bring together what they give for each group, and reduce that.

        Args:
            tasks: descriptions that pickle.
            run: gives numbers of groups and bytes.
            step: takes a group and all its bytes.
        """

    def gathered(self, tasks: Sequence[Task], run: Mapper[Task], steps: Steps) -> list[str]:
        """Do the same in two steps: what the first gives for groups, the second reduces."""


class LocalEngine:
    """This process."""

    def for_bytes(self, landed: int, held: int) -> Engine:
        """See `Engine`."""
        del landed, held
        return self

    def each(self, tasks: Sequence[Task], run: Callable[[Task], Iterator[str]]) -> list[str]:
        """See `Engine`."""
        return [text for task in tasks for text in run(task)]

    def grouped(self, tasks: Sequence[Task], run: Mapper[Task], step: Step[list[str]]) -> list[str]:
        """See `Engine`."""
        reduce, _ = step  # there is one process
        found = _by_group(pair for task in tasks for pair in run(task))
        return [text for group in sorted(found) for text in reduce(group, found.pop(group))]

    def gathered(self, tasks: Sequence[Task], run: Mapper[Task], steps: Steps) -> list[str]:
        """See `Engine`."""
        (reduce, _), (gather, _) = steps
        found = _by_group(pair for task in tasks for pair in run(task))
        between = _by_group(p for g in sorted(found) for p in reduce(g, found.pop(g)))
        return [text for group in sorted(between) for text in gather(group, between.pop(group))]


def _by_group(pairs: Iterable[tuple[int, bytes]]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for group, payload in pairs:
        found.setdefault(group, []).append(payload)
    return found


class SparkEngine:
    """A Spark session: one Spark task per task, and per share of the groups.

    Args:
        spark: running; this package must be installed where its executors run.
    """

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    @property
    def session(self) -> "SparkSession":
        """The session."""
        return self._spark

    def for_bytes(self, landed: int, held: int) -> Engine:
        """See `Engine`: for few bytes this process, at once.

        A stage of Spark takes longer to begin than such tasks take. A change counts eight times: all of them
        are in memory at once.
        """
        most = int(self._spark.conf.get(DRIVER_BYTES, None) or _DRIVER_BYTES)
        return LocalEngine() if 8 * landed + held <= most else self

    def each(self, tasks: Sequence[Task], run: Callable[[Task], Iterator[str]]) -> list[str]:
        """See `Engine`."""
        if not tasks:
            return []
        frame = self._numbers(len(tasks)).mapInArrow(
            functools.partial(_each_batch, tasks=list(tasks), run=run), "said string"
        )
        return _collect(frame)

    def grouped(self, tasks: Sequence[Task], run: Mapper[Task], step: Step[list[str]]) -> list[str]:
        """See `Engine`."""
        if not tasks:
            return []
        reduce, shares = step
        return _collect(_said(self._mapped(tasks, run, shares), reduce))

    def gathered(self, tasks: Sequence[Task], run: Mapper[Task], steps: Steps) -> list[str]:
        """See `Engine`."""
        if not tasks:
            return []
        (reduce, shares), (gather, second) = steps
        task_of = _TaskOf.of(second)

        def reduce_table(table: pa.Table) -> pa.Table:  # Spark wants to see the types
            return _payload_table(reduce(*_group_of(table)), task_of)

        reduced = self._mapped(tasks, run, shares).groupBy(*_GROUP).applyInArrow(
            reduce_table, _PAYLOADS
        )  # fmt: skip
        is_alone = len(tasks) == 1 and len(task_of.labels) == 1 and not any(shares.values())
        if not is_alone:
            reduced = reduced.repartition(len(task_of.labels), "gd_task")
        return _collect(_said(reduced, gather))

    def _mapped(
        self, tasks: Sequence[Task], run: Mapper[Task], shares: Mapping[int, int]
    ) -> "DataFrame":
        """What tasks give, where it is reduced."""
        task_of = _TaskOf.of(shares)
        mapped = self._numbers(len(tasks)).mapInArrow(
            functools.partial(_grouped_batch, tasks=list(tasks), run=run, task_of=task_of),
            _PAYLOADS,
        )
        if len(task_of.labels) == len(tasks) == 1:
            return mapped
        # A number that is asked for is not coalesced by adaptive execution, and what is spread by
        # the task alone is not shuffled again to be grouped by both.
        return mapped.repartition(len(task_of.labels), "gd_task")

    def _numbers(self, count: int) -> "DataFrame":
        return self._spark.range(0, count, 1, count)


def _said(frame: "DataFrame", reduce: Callable[[int, Sequence[bytes]], list[str]]) -> "DataFrame":
    def reduce_table(table: pa.Table) -> pa.Table:
        return pa.table({"said": pa.array(reduce(*_group_of(table)), pa.string())})

    return frame.groupBy(*_GROUP).applyInArrow(reduce_table, "said string")


def _collect(frame: "DataFrame") -> list[str]:
    """Run a job; give our own errors back as what they were on the executor."""
    from pyspark.errors import PythonException

    try:
        return [str(row.said) for row in frame.collect()]
    except PythonException as error:
        found = _OURS.search(str(error))
        if found is None:
            raise
        raise from_record({"class": found[1], "args": [found[2]]}) from None


def _each_batch(
    batches: Iterator[pa.RecordBatch], tasks: Sequence[Task], run: Callable[[Task], Iterator[str]]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            texts = list(run(tasks[number]))
            yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["said"])


def _grouped_batch(
    batches: Iterator[pa.RecordBatch], tasks: Sequence[Task], run: Mapper[Task], task_of: _TaskOf
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for group, payload in run(tasks[number]):
                yield from _payload_table([(group, payload)], task_of).to_batches()


def _payload_table(pairs: Iterable[tuple[int, bytes]], task_of: _TaskOf) -> pa.Table:
    pairs = list(pairs)
    groups = [group for group, _ in pairs]
    arrays = [
        pa.array([task_of(group) for group in groups], pa.int64()),
        pa.array(groups, pa.int64()),
        pa.array([payload for _, payload in pairs], pa.binary()),
    ]
    return pa.table(arrays, names=[*_GROUP, "payload"])


def _group_of(table: pa.Table) -> tuple[int, list[bytes]]:
    return int(table.column("gd_group")[0].as_py()), table.column("payload").to_pylist()
