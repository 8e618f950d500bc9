"""What the catalogue adds to a relation."""

import dataclasses
from pathlib import Path

import pytest
from kit.postgres import Database

from gaussdecode.errors import SourceError
from gaussdecode.model.relation import Relation, ReplicaIdentity
from gaussdecode.options import SourceKind
from gaussdecode.settings import (
    Config,
    DecodingConfig,
    LandingConfig,
    MonitoringConfig,
    RingConfig,
    SourceConfig,
)
from gaussdecode.source.catalog import Catalog
from gaussdecode.source.settings import reader_settings


def config_for(dsn: str, kind: SourceKind = SourceKind.POSTGRESQL) -> Config:
    """A configuration with this source."""
    file = Path("/nowhere") if kind is SourceKind.CAPTURE else None
    return Config(
        path=Path("orders.yaml"),
        slot="orders",
        source=SourceConfig(kind=kind, dsn=dsn, publication=("p",), allow_insecure=True, file=file),
        decoding=DecodingConfig(white_table_list="public.*,*.t"),
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
        assert catalog.look_up(relation(4711)) is None
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
def test_lost_connection_is_made_again(database: Database) -> None:
    """One failure gives None and rests; later it works again."""
    now = 0.0
    catalog = Catalog(config_for(database.dsn + " sslmode=disable"), clock=lambda: now)
    database.execute("CREATE TABLE t (a int)")
    oid = database.execute("SELECT 't'::regclass::oid")[0][0]
    assert catalog.look_up(relation(oid)) is not None
    database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
        "current_database() AND pid <> pg_backend_pid() AND application_name = 'gaussdecode'"
    )
    assert catalog.look_up(relation(oid)) is None
    assert catalog.look_up(relation(oid)) is None
    assert catalog.failure_count == 1
    now = 31.0
    assert catalog.look_up(relation(oid)) is not None
    assert catalog.failure is None
    catalog.close()


def test_unreachable_catalogue_is_no_error() -> None:
    """The answer is unknown, and the reason is kept without the password."""
    dsn = "host=127.0.0.1 port=1 dbname=x user=y password=geheim sslmode=disable"
    catalog = Catalog(config_for(dsn))
    assert catalog.look_up(relation(1)) is None
    assert catalog.failure is not None
    assert "geheim" not in catalog.failure


def test_key_of_a_full_identity_is_not_guessed() -> None:
    """Only the catalogue knows it: an unreadable one is an error, also while it rests."""
    dsn = "host=127.0.0.1 port=1 dbname=x user=y sslmode=disable"
    catalog = Catalog(config_for(dsn))
    full = dataclasses.replace(relation(1), identity=ReplicaIdentity.FULL)
    for _ in range(2):
        with pytest.raises(SourceError, match=r"REPLICA IDENTITY FULL, so its key"):
            catalog.look_up(full)


def test_capture_has_no_catalogue() -> None:
    """Nothing is asked, nothing is wrong."""
    catalog = Catalog(config_for("", SourceKind.CAPTURE))
    assert catalog.look_up(relation(1)) is None
    assert catalog.failure is None


def test_reader_is_told_what_the_configuration_says() -> None:
    """Every key of the reader's settings, for a landing yet to begin."""
    settings = reader_settings(config_for("host=/run dbname=x user=y"), None)
    assert settings["kind"] == "postgresql"
    assert settings["slot"] == "orders"
    assert settings["publications"] == ["p"]
    assert settings["white_tables"] == [["public", "*"], ["*", "t"]]
    assert settings["log"] is None
    assert settings["password"] is None
    assert settings["is_insecure_allowed"] is True
