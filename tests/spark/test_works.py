"""Tests for `gaussdecode.spark.merge.works`."""

from types import SimpleNamespace
from typing import Any, cast

from gaussdecode.spark.apply import Options, Summary
from gaussdecode.spark.merge.context import Context
from gaussdecode.spark.merge.plan import Applied, Era, TablePlan
from gaussdecode.spark.merge.works import works_of
from gaussdecode.spark.target.state_file import PartVersion


def test_a_source_without_changes_has_files_of_its_own() -> None:
    """With rows in quarantine it takes part too; a file of one source is no file of another."""
    schemas = [cast("Any", SimpleNamespace(source=s, schema_id=s)) for s in ("dn1", "dn2")]
    version = SimpleNamespace(
        v=0, quarantine=("q",), partition=(), cluster=(), current=(),
        parts={"dn1": PartVersion(1, None), "dn2": PartVersion(1, None)},
        buckets_of=lambda _source: 1,
    )  # fmt: skip
    store = SimpleNamespace(
        newest=lambda _table: version,
        files_of=lambda _table, files, _source: list(files),
        keep_schema=lambda *_: None,
    )
    context = SimpleNamespace(
        store=store,
        landing=SimpleNamespace(schema_record=lambda *_: {}),
        summary=Summary(-1, -1, 0),
        options=Options(),
    )
    changed = TablePlan("t", 1, [Era(schemas[0], {"dn1": schemas[0]}, [], [])], None)
    joint = cast("Any", SimpleNamespace(parts=schemas))
    planned = TablePlan("t", 1, [], None, parts={"dn1": changed}, schema=joint)
    first, other = works_of(cast("Context", context), planned, Applied(), None)
    assert (first.source, other.source) == ("dn1", "dn2")
    first.closed.append(cast("Any", "closed"))
    first.changelog.append(cast("Any", "changes"))
    assert other.closed == other.changelog == []
