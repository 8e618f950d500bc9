"""Who runs the tasks: Spark, or this process.

Both give the same result: the tasks are plain functions over descriptions. The one in this
process needs no Java; it is for small landings and for tests.
"""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import pyarrow as pa

from gaussdecode.errors import from_record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Task = TypeVar("Task")
_OURS: Final = re.compile(r"^\s*gaussdecode\.errors\.(\w+): (.+)$", re.MULTILINE)
Grouped = Iterator[tuple[int, bytes]]


class Engine(Protocol):
    """Runs tasks."""

    def each(self, tasks: Sequence[Task], run: Callable[[Task], Iterator[str]]) -> list[str]:
        """Run every task; give all they say."""

    def grouped(
        self, tasks: Sequence[Task], run: Callable[[Task], Grouped],
        reduce: Callable[[int, Sequence[bytes]], list[str]],
    ) -> list[str]:  # fmt: skip
        """Run every task, bring together what they give for each group, and reduce that."""


class LocalEngine:
    """This process."""

    def each(self, tasks: Sequence[Task], run: Callable[[Task], Iterator[str]]) -> list[str]:
        """See `Engine`."""
        return [text for task in tasks for text in run(task)]

    def grouped(
        self, tasks: Sequence[Task], run: Callable[[Task], Grouped],
        reduce: Callable[[int, Sequence[bytes]], list[str]],
    ) -> list[str]:  # fmt: skip
        """See `Engine`."""
        groups: dict[int, list[bytes]] = {}
        for task in tasks:
            for group, payload in run(task):
                groups.setdefault(group, []).append(payload)
        return [text for group in sorted(groups) for text in reduce(group, groups.pop(group))]


class SparkEngine:
    """A Spark session: one Spark task per task, and per group.

    Args:
        spark: running; this package must be installed where its executors run.
    """

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark

    @property
    def session(self) -> "SparkSession":
        """The session."""
        return self._spark

    def each(self, tasks: Sequence[Task], run: Callable[[Task], Iterator[str]]) -> list[str]:
        """See `Engine`."""
        if not tasks:
            return []
        frame = self._numbers(len(tasks)).mapInArrow(
            functools.partial(_each_batch, tasks=list(tasks), run=run), "said string"
        )
        return _collect(frame)

    def grouped(
        self, tasks: Sequence[Task], run: Callable[[Task], Grouped],
        reduce: Callable[[int, Sequence[bytes]], list[str]],
    ) -> list[str]:  # fmt: skip
        """See `Engine`."""
        if not tasks:
            return []
        mapped = self._numbers(len(tasks)).mapInArrow(
            functools.partial(_grouped_batch, tasks=list(tasks), run=run),
            "gd_group bigint, payload binary",
        )

        def reduce_table(table: pa.Table) -> pa.Table:  # Spark wants to see the types
            return _reduce_table(table, reduce)

        reduced = mapped.groupBy("gd_group").applyInArrow(reduce_table, "said string")
        return _collect(reduced)

    def _numbers(self, count: int) -> "DataFrame":
        return self._spark.range(0, count, 1, count)


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
    batches: Iterator[pa.RecordBatch], tasks: Sequence[Task], run: Callable[[Task], Grouped]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for group, payload in run(tasks[number]):
                yield pa.RecordBatch.from_arrays(
                    [pa.array([group], pa.int64()), pa.array([payload], pa.binary())],
                    ["gd_group", "payload"],
                )


def _reduce_table(table: pa.Table, reduce: Callable[[int, Sequence[bytes]], list[str]]) -> pa.Table:
    group = int(table.column("gd_group")[0].as_py())
    texts = reduce(group, table.column("payload").to_pylist())
    return pa.table({"said": pa.array(texts, pa.string())})
