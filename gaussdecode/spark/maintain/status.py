"""Report how far a target is applied."""

import dataclasses
import time
from collections.abc import Iterable, Mapping

from gaussdecode.model.exposition import label_value
from gaussdecode.spark.checks.data_tests import Failed
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.place import Given, place_of
from gaussdecode.spark.target.database_version import DatabaseVersion
from gaussdecode.spark.target.decided import Stop
from gaussdecode.spark.target.store import Json, Target


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    """How far a target is applied.

    Attributes:
        n: entry up to which all its tables are complete; -1 before the first.
        last_n: newest entry of the landing.
        lag_seconds: age of the oldest entry that is not applied; 0 if all are.
        stopped: tables that are stopped; see `database_version.DatabaseVersion`.
        unmatched: changes that did not match the table's rows, by table, since the table was begun;
            Delta Lake tables only.
        gone: stopped tables that the source does not have any more.
        renamed: titles of tables that are in the directory of another name, by directory.
    """

    n: int
    last_n: int
    lag_seconds: float
    stopped: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    unmatched: Mapping[str, int] = dataclasses.field(default_factory=dict)
    gone: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def lag_entries(self) -> int:
        """Number of entries that are not applied."""
        return self.last_n - self.n


def status(root: Given, target: Given) -> Status:
    """Report how far a target is behind its landing.

    Raises:
        ConfigError: the target is made from another landing.
        LandingError: the target is made from other entries.
    """
    landing, found = Landing(root), None
    if (place_of(target) / "target.json").exists():
        store = Target(target)
        store.check_landing(landing)
        found = store.database()
    unmatched = {} if found is None else _unmatched(Target(target), found)
    n, last = -1 if found is None else found.n, landing.last_n
    lag = 0.0
    if n < last:
        oldest = landing.entry(max(n + 1, landing.first_n))
        lag = max(0.0, time.time() - oldest.committed_time.timestamp())
    stopped = {} if found is None else found.stopped
    gone = {table: stop for table, stop in stopped.items() if Stop(**stop).is_gone}
    held = {table: stop for table, stop in stopped.items() if table not in gone}
    renamed = {} if found is None else found.renamed
    return Status(n, last, lag, held, unmatched, gone, renamed)


def _unmatched(store: Target, found: DatabaseVersion) -> dict[str, int]:
    """`Status.unmatched` of a version."""
    versions = {table: store.version(table, v) for table, v in found.tables.items()}
    return {table: version.unmatched for table, version in versions.items() if version.unmatched}


def metrics_text(root: Given, target: Given, tests: Iterable[Failed] = ()) -> str:
    """Write the status in Prometheus' text format, for node_exporter's textfile collector.

    Args:
        root: root of the landing.
        target: directory or URL.
        tests: results of the last run of each test.
    """
    now = status(root, target)
    values = {
        "applied_entry": now.n,
        "landed_entry": now.last_n,
        "lag_entries": now.lag_entries,
        "lag_seconds": round(now.lag_seconds, 3),
        "stopped_tables": len(now.stopped),
        "gone_tables": len(now.gone),
    }
    label = label_value(str(place_of(target)))
    text = "".join(
        f"# TYPE gaussdecode_spark_{name} gauge\n"
        f"gaussdecode_spark_{name}{{target={label}}} {value}\n"
        for name, value in values.items()
    )
    for title, count in now.unmatched.items():
        text += "" if "_unmatched" in text else "# TYPE gaussdecode_spark_unmatched_changes gauge\n"
        named = f"target={label},table={label_value(title)}"
        text += f"gaussdecode_spark_unmatched_changes{{{named}}} {count}\n"
    tests = list(tests)
    if tests:
        text += "# TYPE gaussdecode_spark_test_failed_rows gauge\n"
    return text + "".join(
        f"gaussdecode_spark_test_failed_rows{{target={label},table={label_value(of.table)},"
        f"test={label_value(of.test)},on_failure={label_value(of.on_failure)}}} {of.rows}\n"
        for of in tests
    )
