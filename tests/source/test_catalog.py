"""What the catalogue adds to a relation."""

import dataclasses
import json
from pathlib import Path

import pytest
from kit.postgres import Database

from gaussdecode.errors import SourceError
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.relation import Relation, ReplicaIdentity
from gaussdecode.settings.landing_sections import LandingConfig
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config, MonitoringConfig, RingConfig
from gaussdecode.settings.source_sections import DecodingConfig, SourceConfig
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.catalog import Catalog
from gaussdecode.source.postgresql.connection import Connection, Row
from gaussdecode.source.settings import ReaderSettings
from gaussdecode.source.slot import LandingPosition


def config_for(dsn: str, kind: SourceKind = SourceKind.POSTGRESQL) -> Config:
    """A configuration with this source."""
    file = Path("/nowhere") if kind is SourceKind.CAPTURE else None
    return Config(
        path=Path("orders.yaml"),
        slot="orders",
        source=SourceConfig(kind=kind, dsn=dsn, publication=("p",), allow_insecure=True, file=file),
        decoding=DecodingConfig.of(kind, {"white-table-list": "public.*,*.t"}),
        landing=LandingConfig(root=Path("/nowhere")),
        ring=RingConfig(),
        monitoring=MonitoringConfig(),
    )


def relation(oid: int) -> Relation:
    """A relation of the stream; only its OID is looked at."""
    return Relation(1, oid, "public", "t", ReplicaIdentity.DEFAULT, ())


@pytest.mark.integration
def test_columns_key_and_storage(database: Database) -> None:
    """Modifiers, key order and what may be stored out of line, without dropped columns."""
    database.execute(
        "CREATE TABLE t (a int, gone int, b numeric(10,2), c varchar(7) NOT NULL, d uuid, "
        "e text, f int GENERATED ALWAYS AS (a + 1) STORED, PRIMARY KEY (c, a));"
        "ALTER TABLE t DROP COLUMN gone; ALTER TABLE t ALTER e SET STORAGE PLAIN"
    )
    oid = database.execute("SELECT 't'::regclass::oid")[0][0]
    with Catalog(config_for(database.dsn + " sslmode=disable")) as catalog:
        table = catalog.look_up(relation(oid))
        gone = catalog.look_up(relation(4711))
        assert gone is not None
        assert (gone.oid, gone.name, gone.columns) == (0, "t", ())
    assert table is not None
    assert (table.schema, table.name, table.kind, table.identity) == ("public", "t", "r", "d")
    assert table.primary_key == ("c", "a")
    assert [(c.name, c.number, c.type_text) for c in table.columns] == [
        ("a", 1, "integer"),
        ("b", 3, "numeric(10,2)"),
        ("c", 4, "character varying(7)"),
        ("d", 5, "uuid"),
        ("e", 6, "text"),
        ("f", 7, "integer"),
    ]
    assert [c.name for c in table.columns if c.is_toastable] == ["b", "c"]
    assert [c.name for c in table.columns if c.is_generated] == ["f"]
    assert [c.name for c in table.columns if c.is_not_null] == ["a", "c"]


@pytest.mark.integration
def test_partitions_are_looked_through_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the constants of a partitioned table, until its columns change; a root is described by partition."""
    database.execute(
        "CREATE TABLE t (a int) PARTITION BY LIST (a);"
        "CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1); CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (2);"
        "INSERT INTO t VALUES (1), (2); ALTER TABLE t ADD b int DEFAULT 5"
    )
    oid = database.execute("SELECT 't'::regclass::oid")[0][0]
    asked: list[str] = []
    query = Connection.query

    def noted(self: Connection, sql: str) -> list[Row]:
        asked.append(sql)
        return query(self, sql)

    monkeypatch.setattr(Connection, "query", noted)
    with Catalog(config_for(database.dsn + " sslmode=disable")) as catalog:

        def constants() -> list[str | None]:
            table = catalog.look_up(relation(oid))
            assert table is not None
            return [column.constant for column in table.columns]

        assert constants() == [None, "5"]
        assert constants() == [None, "5"]
        assert sum("RECURSIVE" in sql for sql in asked) == 1
        database.execute("ALTER TABLE t ADD c text DEFAULT 'x'")
        assert constants() == [None, "5", "x"]
        database.execute("ALTER TABLE t DROP b; ALTER TABLE t ADD b int DEFAULT 6")
        assert constants() == [None, "x", "6"]


def settle(database: Database) -> None:
    """Make the slot, and let it forget what was before; other slots' horizons begin it."""
    database.execute("SELECT pg_create_logical_replication_slot('orders', 'pgoutput')")
    xid = database.execute("SELECT txid_current()")[0][0]
    for _ in range(100):
        database.execute("CHECKPOINT")
        database.execute(
            "SELECT count(*) FROM pg_logical_slot_get_binary_changes('orders', NULL, NULL, "
            "'proto_version', '1', 'publication_names', 'p')"
        )
        horizon = database.execute(
            "SELECT catalog_xmin::text::int8 FROM pg_replication_slots WHERE slot_name = 'orders'"
        )
        if horizon[0][0] > xid:
            return
    raise AssertionError("the slot's horizon does not move")


@pytest.mark.integration
def test_all_attributes_and_what_is_settled(database: Database) -> None:
    """Dropped ones too; settled is what the slot cannot have missed, by its catalog_xmin."""
    database.execute(
        "CREATE TABLE t (a int, gone int, b int); ALTER TABLE t DROP COLUMN gone;"
        "CREATE PUBLICATION p FOR TABLE t"
    )
    settle(database)
    database.execute("ALTER TABLE t ADD c int; ALTER TABLE t RENAME b TO d")
    oid = database.execute("SELECT 't'::regclass::oid")[0][0]
    try:
        with Catalog(config_for(database.dsn + " sslmode=disable")) as catalog:
            table = catalog.look_up(relation(oid))
    finally:
        database.execute("SELECT pg_drop_replication_slot('orders')")
    assert table is not None
    assert table.reading is not None
    found = [(a.number, a.is_dropped, a.is_settled) for a in table.reading.attributes]
    assert found == [(1, False, True), (2, True, True), (3, False, False), (4, False, False)]
    assert [a.name for a in table.reading.attributes if not a.is_dropped] == ["a", "d", "c"]
    assert not table.reading.may_hide
    assert not table.reading.sends_generated


@pytest.mark.integration
def test_lists_of_columns_are_seen(database: Database) -> None:
    """A list that holds, and one that may have held until a moment ago."""
    database.execute("CREATE TABLE t (a int, b int); CREATE TABLE u (a int)")
    database.execute("CREATE PUBLICATION p FOR TABLE t (a), u")
    settle(database)
    oids = [database.execute(f"SELECT '{name}'::regclass::oid")[0][0] for name in "tu"]

    def may_hide() -> list[bool]:
        with Catalog(config_for(database.dsn + " sslmode=disable")) as catalog:
            found = [catalog.look_up(relation(oid)) for oid in oids]
        return [one.reading.may_hide for one in found if one is not None and one.reading]

    try:
        assert may_hide() == [True, False]
        database.execute("ALTER PUBLICATION p SET TABLE t, u")
        assert may_hide() == [True, False]
        database.execute("ALTER PUBLICATION p DROP TABLE u")
        assert may_hide() == [True, True]
    finally:
        database.execute("SELECT pg_drop_replication_slot('orders')")


@pytest.mark.integration
def test_cut_connection_is_made_again(database: Database) -> None:
    """An idle connection that was cut is no failure."""
    catalog = Catalog(config_for(database.dsn + " sslmode=disable"))
    database.execute("CREATE TABLE t (a int)")
    oid = database.execute("SELECT 't'::regclass::oid")[0][0]
    assert catalog.look_up(relation(oid)) is not None
    database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
        "current_database() AND pid <> pg_backend_pid() AND application_name = 'gaussdecode'"
    )
    assert catalog.look_up(relation(oid)) is not None
    assert catalog.failure_count == 0
    catalog.close()


def test_unreachable_catalogue_ends_some_sessions_and_then_none() -> None:
    """It is tried again at first; then columns are unknown, and it is asked now and then."""
    now = 0.0
    dsn = "host=127.0.0.1 port=1 dbname=x user=y password=geheim sslmode=disable"
    catalog = Catalog(config_for(dsn), clock=lambda: now)
    for moment in (0.0, 60.0, 119.0):
        now = moment
        with pytest.raises(SourceError, match="only the catalogue has the columns"):
            catalog.look_up(relation(1))
    now = 121.0
    assert catalog.look_up(relation(1)) is None
    assert catalog.failure_count == 4
    assert catalog.look_up(relation(1)) is None
    assert catalog.failure_count == 4
    now = 152.0
    assert catalog.look_up(relation(1)) is None
    assert catalog.failure_count == 5
    assert catalog.failure is not None
    assert "geheim" not in catalog.failure


def test_key_of_a_full_identity_is_not_guessed() -> None:
    """Only the catalogue knows it: an unreadable one is an error, also while it rests."""
    dsn = "host=127.0.0.1 port=1 dbname=x user=y sslmode=disable"
    catalog = Catalog(config_for(dsn))
    full = dataclasses.replace(relation(1), identity=ReplicaIdentity.FULL)
    for _ in range(2):
        with pytest.raises(
            SourceError, match=r"REPLICA IDENTITY FULL, so only the catalogue has its key"
        ):
            catalog.look_up(full)


def test_capture_has_no_catalogue() -> None:
    """Nothing is asked, nothing is wrong."""
    catalog = Catalog(config_for("", SourceKind.CAPTURE))
    assert catalog.look_up(relation(1)) is None
    assert catalog.failure is None


def test_reader_is_told_what_the_configuration_says() -> None:
    """Every key of the reader's settings, for a landing yet to begin."""
    config = config_for("host=/run dbname=x user=y")
    settings = ReaderSettings.of(config, None, "/nowhere/spool")
    assert settings.kind is SourceKind.POSTGRESQL
    assert settings.slot == "orders"
    assert settings.publications == ("p",)
    assert settings.decoding.white_tables == (("public", "*"), ("*", "t"))
    assert settings.log is None
    assert settings.address == SourceAddress(config.conninfo(), None, True)


@pytest.mark.parametrize("kind", SourceKind)
def test_settings_of_the_reader_survive_json(kind: SourceKind) -> None:
    """As they are told to it, with what the log says and what is left out."""
    log = LandingPosition("7", 2, "x", "orders", "pgoutput", Lsn(3), Lsn(2))
    settings = dataclasses.replace(
        ReaderSettings.of(config_for("host=/run dbname=x user=y", kind), log, "/nowhere/spool"),
        unread=(16384,),
        left_out=("public.t",),
    )
    assert ReaderSettings.from_record(json.loads(json.dumps(settings.to_record()))) == settings
