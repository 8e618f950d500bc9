"""The collector between a stream and a writer that only remembers."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.entries import BEGIN, COMMIT, Item, Mark, Row, entry, relation, relation_mark

from gaussdecode.collect.collector import Collector, CollectorSettings
from gaussdecode.collect.spool import Spool
from gaussdecode.collect.tables import Tables
from gaussdecode.model.landing import SourcePosition
from gaussdecode.model.publication import PublicationRequest, RowGroup
from gaussdecode.model.relation import Relation

_SETTINGS = CollectorSettings(
    row_group_rows=10,
    row_group_bytes=1 << 20,
    memory_bytes=1 << 22,
    txn_memory_bytes=1 << 20,
    target_file_size=1 << 20,
    max_commit_interval=3600.0,
    only_local=True,
    skip_empty_xacts=False,
    include_xids=True,
    include_timestamp=True,
)


class _Writer:
    """Remembers."""

    publication_seconds = 0.0
    largest_file_bytes = 0

    def __init__(self) -> None:
        self.groups: list[RowGroup] = []
        self.requests: list[PublicationRequest] = []

    def write(self, group: RowGroup) -> None:
        self.groups.append(group)

    def publish(self, request: PublicationRequest) -> None:
        self.requests.append(request)


class _Schemas:
    """Schemas by the names of their columns."""

    def schema_id_for(self, table: str, record: dict[str, Any]) -> tuple[str, bool]:  # Any: JSON
        return "-".join(column["name"] for column in record["columns"]), False


def _renamed(of: Relation, note: str) -> Relation:
    first, second = of.columns
    return dataclasses.replace(of, columns=(first, dataclasses.replace(second, name=note)))


def _inserts(version: int, lsn: int, count: int) -> list[Item]:
    rows: list[Item] = [Row(version, number, "x") for number in range(count)]
    return [Mark(BEGIN, x=lsn, z=lsn), *rows, Mark(COMMIT, x=lsn, y=lsn + 1)]


@pytest.fixture
def make_collector(tmp_path: Path) -> Callable[[_Writer], Collector]:
    """Make a collector that writes to a given writer."""

    def make(writer: _Writer) -> Collector:
        tables = Tables(_Schemas(), lambda schema, name: f"{schema}.{name}", list, lambda _: None)
        spool = Spool(tmp_path, lambda _, operation: operation())
        return Collector(_SETTINGS, tables, writer, spool, SourcePosition(1, 1, 1), {})

    return make


def test_rows_of_an_older_schema_leave_first(
    make_collector: Callable[[_Writer], Collector],
) -> None:
    """A full row group does not overtake rows of its table under the schemas before it."""
    writer = _Writer()
    collector = make_collector(writer)
    first = relation(1, "t", oid=7)
    renamed = dataclasses.replace(_renamed(first, "remark"), version=2)
    back = dataclasses.replace(first, version=3)
    for seq, (of, lsn, count) in enumerate([(first, 10, 2), (renamed, 20, 3), (back, 30, 50)]):
        batch = entry(seq, [relation_mark(of), *_inserts(of.version, lsn, count)])
        collector.assembler.absorb_bytes(batch)
    collector._publish_if(is_due=True)
    groups = [group for group in writer.groups if group.table_dir == "public.t"]
    assert [(group.first.lsn, group.last.lsn) for group in groups] == [(11, 11), (21, 21), (31, 31)]
    (request,) = writer.requests
    changes = [change for change in request.schema_changes if change.table == "public.t"]
    assert [(change.previous, change.schema_id) for change in changes] == [
        (None, "id-note"),
        ("id-note", "id-remark"),
        ("id-remark", "id-note"),
    ]
    assert [change.position.lsn for change in changes] == [11, 21, 31]
