"""Which tables' changes all show in the stream; pure, but for what a server says."""

from collections.abc import Iterator

import pytest
from kit.postgres import Database

from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.carried import (
    Changes,
    Logged,
    Sender,
    why_filtered,
    why_not_logged,
    why_not_sent,
)
from gaussdecode.source.postgresql.connection import Connection, connect
from gaussdecode.source.postgresql.published import read_published, read_shape

ALL = frozenset({"INSERT", "UPDATE", "DELETE"})
INSERT = frozenset({"INSERT"})
REST = ALL - INSERT


@pytest.mark.parametrize(
    ("senders", "wanted"),
    [
        ([Sender("a", ALL, None)], None),
        ([Sender("a", ALL, "x")], None),
        ([Sender("a", INSERT, None), Sender("b", REST, None)], None),
        ([Sender("a", INSERT, "x"), Sender("b", REST, "x")], None),
        ([Sender("a", ALL, "x"), Sender("b", ALL, "y")], None),
        ([Sender("a", INSERT, None)], "publication 'a' does not send UPDATE"),
        ([Sender("a", REST, None)], "publication 'a' does not send INSERT"),
        ([Sender("a", ALL - {"DELETE"}, "x")], "publication 'a' does not send DELETE"),
        ([Sender("a", INSERT, "x"), Sender("b", REST, None)], "publications send different rows"),
        ([Sender("a", ALL, "x"), Sender("b", INSERT, "y")], "publications send different rows"),
        ([], "publication  does not send INSERT"),
    ],
)
def test_what_publications_leave_out(senders: list[Sender], wanted: str | None) -> None:
    """Every kind of change is sent, and of the same rows."""
    found = why_not_sent(senders)
    assert found is wanted is None or (wanted is not None and (found or "").startswith(wanted))


def test_origins_count_only_where_they_are_left_out() -> None:
    """With only-local, and where the server has any."""
    assert why_filtered(0, is_local_only=True) is None
    assert why_filtered(2, is_local_only=False) is None
    assert "only-local" in (why_filtered(1, is_local_only=True) or "")


def test_partitions_log_old_keys_as_their_table_does() -> None:
    """Another identity, or another key, hides the old key of an update."""
    root = Logged(1, "d", "id", False)
    assert why_not_logged(root, [root, Logged(2, "d", "id", False)]) is None
    assert why_not_logged(root, [Logged(2, "i", "id", False)])
    assert why_not_logged(root, [Logged(2, "d", "other", False)])
    assert why_not_logged(Logged(1, "d", "id", True), [])


@pytest.fixture
def connection(database: Database, address: SourceAddress) -> Iterator[Connection]:
    """An ordinary connection to a database with its publication only of what a test adds."""
    database.execute(f'DROP PUBLICATION "{database.publication}"')
    with connect(address, is_replication=False) as opened:
        yield opened


def _look(connection: Connection, names: list[str]) -> dict[str, tuple[str | None, str]]:
    changes = Changes(connection, names, is_local_only=False)
    found = {}
    for table in read_published(connection, names, changes):
        shape = read_shape(connection, table, changes)
        found[table.title] = (shape.unseen, shape.evidence)
    return found


@pytest.mark.integration
def test_evidence_tells_there_and_back(connection: Connection, database: Database) -> None:
    """What was changed and changed back is not what it was."""
    names = [database.name]
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, k int NOT NULL); CREATE UNIQUE INDEX other ON t (k);"
        f'CREATE PUBLICATION "{database.name}" FOR TABLE t'
    )
    seen = [_look(connection, names)["public.t"]]
    for there, back in (
        (f"ALTER PUBLICATION \"{database.name}\" SET (publish = 'insert')",
         f"ALTER PUBLICATION \"{database.name}\" SET (publish = 'insert, update, delete, truncate')"),
        (f'ALTER PUBLICATION "{database.name}" DROP TABLE t',
         f'ALTER PUBLICATION "{database.name}" ADD TABLE t'),
        ("ALTER TABLE t REPLICA IDENTITY USING INDEX other",
         "ALTER TABLE t REPLICA IDENTITY DEFAULT"),
        (f'DROP PUBLICATION "{database.name}"', f'CREATE PUBLICATION "{database.name}" FOR TABLE t'),
    ):  # fmt: skip
        database.execute(there)
        database.execute(back)
        seen.append(_look(connection, names)["public.t"])
    assert [reason for reason, _ in seen] == [None] * 5
    assert len({evidence for _, evidence in seen}) == 5
    assert _look(connection, names)["public.t"] == seen[-1]


@pytest.mark.integration
def test_partitions_below_a_root_are_sent_as_it(connection: Connection, database: Database) -> None:
    """Two publications, one of the root and one of a leaf: the leaf has no changes of its own."""
    one, two = f"{database.name}_root", f"{database.name}_leaf"
    database.execute(
        "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);"
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20);"
        f'CREATE PUBLICATION "{one}" FOR TABLE p WITH (publish_via_partition_root);'
        f'CREATE PUBLICATION "{two}" FOR TABLE p1'
    )
    assert {title: of[0] for title, of in _look(connection, [one, two]).items()} == {
        "public.p": None
    }
    database.execute("ALTER TABLE p2 REPLICA IDENTITY FULL")
    ((reason, _),) = _look(connection, [one, two]).values()
    assert reason == "a partition has another replica identity than the table"
