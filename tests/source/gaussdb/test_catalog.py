"""What the catalogue adds to a GaussDB table, from a real PostgreSQL and a simulated server."""

from collections.abc import Iterator

import pytest
from kit.gaussprofile import V6_0_0
from kit.gaussserver import GaussServer
from kit.gausssql import Catalogue
from kit.gaussstore import Store
from kit.postgres import Database, Postgres

from gaussdecode.errors import SourceError, SourceRefusedError
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.gaussdb.catalog import GaussCatalog


@pytest.fixture
def catalog(address: SourceAddress) -> Iterator[GaussCatalog]:
    """The catalogue of the real server's database."""
    with GaussCatalog(address) as made:
        yield made


@pytest.mark.integration
def test_columns_key_and_storage(database: Database, catalog: GaussCatalog) -> None:
    """Modifiers, key order and what may be stored out of line, without dropped columns."""
    database.execute(
        "CREATE TABLE t (a int, gone int, b numeric(10,2), c varchar(7) NOT NULL, d uuid, "
        "e text, PRIMARY KEY (c, a));"
        "ALTER TABLE t DROP COLUMN gone; ALTER TABLE t ALTER e SET STORAGE PLAIN"
    )
    table = catalog.look_up_table("public", "t")
    assert catalog.look_up_table("public", "u") is None
    assert catalog.look_up_table("elsewhere", "t") is None
    assert table is not None
    assert table.oid == database.execute("SELECT 't'::regclass::oid")[0][0]
    assert (table.schema, table.name, table.kind, table.identity) == ("public", "t", "r", "d")
    assert table.primary_key == ("c", "a")
    assert table.identity_index == ()
    assert [
        (c.name, c.number, c.type_text, c.type_oid, c.type_modifier) for c in table.columns
    ] == [
        ("a", 1, "integer", 23, -1),
        ("b", 3, "numeric(10,2)", 1700, 10 << 16 | 2 + 4),
        ("c", 4, "character varying(7)", 1043, 11),
        ("d", 5, "uuid", 2950, -1),
        ("e", 6, "text", 25, -1),
    ]
    assert [c.name for c in table.columns if c.is_toastable] == ["b", "c"]
    assert [c.name for c in table.columns if c.is_not_null] == ["a", "c"]


@pytest.mark.integration
def test_index_of_the_identity(database: Database, catalog: GaussCatalog) -> None:
    """Its columns in order, without those it only includes."""
    database.execute(
        "CREATE TABLE t (a int PRIMARY KEY, b int NOT NULL, c int NOT NULL, d int);"
        "CREATE UNIQUE INDEX i ON t (c, b); ALTER TABLE t REPLICA IDENTITY USING INDEX i;"
        "CREATE TABLE u (a int, b int, PRIMARY KEY (a) INCLUDE (b))"
    )
    table = catalog.look_up_table("public", "t")
    assert table is not None
    assert (table.identity, table.identity_index, table.primary_key) == ("i", ("c", "b"), ("a",))
    included = catalog.look_up_table("public", "u")
    assert included is not None
    assert included.primary_key == ("a",)


@pytest.mark.integration
def test_odd_names_are_asked_for_as_they_are(database: Database, catalog: GaussCatalog) -> None:
    """Quotes, backslashes and other alphabets."""
    for name in ("it's", 'say "hi"', "back\\slash", "表", "%s"):
        quoted = name.replace('"', '""')
        database.execute(f'CREATE TABLE "{quoted}" ("{quoted}" int)')
        table = catalog.look_up_table("public", name)
        assert table is not None
        assert (table.name, table.columns[0].name) == (name, name)


@pytest.mark.integration
def test_types_are_followed_to_the_bottom(database: Database, catalog: GaussCatalog) -> None:
    """Domains over domains, arrays of enums, and what is not there."""
    database.execute(
        "CREATE DOMAIN price AS numeric(10,2); CREATE DOMAIN total AS price;"
        "CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN tags AS mood[]"
    )
    names = ("total", "mood", "mood[]", "tags", "int4")
    oids = [database.execute(f"SELECT '{name}'::regtype::oid")[0][0] for name in names]
    total, mood, moods, tags, int4 = oids
    found = catalog.types([*oids, 1])
    assert (found[total].name, found[total].kind) == ("total", "d")
    assert (found[total].base_oid, found[total].base_modifier) == (1700, 10 << 16 | 2 + 4)
    assert (found[mood].kind, found[mood].base_oid, found[mood].schema) == ("e", mood, "public")
    assert (found[moods].element_oid, found[moods].category) == (mood, "A")
    assert (found[tags].base_oid, found[found[tags].base_oid].element_oid) == (moods, mood)
    assert found[int4].base_oid == int4
    assert 1 not in found
    assert catalog.types([]) == {}


@pytest.mark.integration
def test_connection_that_was_closed_meanwhile_is_made_again(
    database: Database, catalog: GaussCatalog
) -> None:
    """Servers end idle sessions; nobody notices."""
    database.execute("CREATE TABLE t (a int)")
    assert catalog.look_up_table("public", "t") is not None
    database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
        "current_database() AND pid <> pg_backend_pid() AND application_name = 'gaussdecode'"
    )
    assert catalog.look_up_table("public", "t") is not None
    assert catalog.failure_count == 0


@pytest.mark.integration
def test_slow_catalogue_ends_in_an_error_that_is_tried_again(
    database: Database, catalog: GaussCatalog
) -> None:
    """A lock on the catalogue costs a few seconds, once."""
    database.execute("CREATE TABLE t (a int)")
    with database.connect() as session:
        session.execute("BEGIN; LOCK TABLE pg_catalog.pg_attrdef IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SourceError, match="reading the catalogue") as caught:
            catalog.look_up_table("public", "t")
        assert caught.value.retryable
        with pytest.raises(SourceError, match="reading the catalogue"):
            catalog.look_up_table("public", "t")
        assert catalog.failure_count == 1
        session.execute("ROLLBACK")


def test_unreachable_catalogue_rests() -> None:
    """The next questions fail at once, without the password; later it is asked again."""
    now = 0.0
    dsn = "host=127.0.0.1 port=1 dbname=x user=y password=geheim sslmode=disable"
    catalog = GaussCatalog(SourceAddress(dsn, None, True), clock=lambda: now)
    for count, at in ((1, 0.0), (1, 9.0), (2, 11.0)):
        now = at
        with pytest.raises(SourceError) as caught:
            catalog.look_up_table("public", "t")
        assert catalog.failure_count == count
        assert "geheim" not in str(caught.value)
        assert caught.value.retryable


# ---- the simulated GaussDB -----------------------------------------------------------------


@pytest.fixture
def gauss(postgres_15: Postgres) -> Iterator[GaussServer]:
    """A simulated server with a catalogue of openGauss's shape."""
    answers = Catalogue(postgres_15)
    with GaussServer(Store(), V6_0_0, catalogue=answers) as server:
        yield server
        assert server.unknown_queries == []
    answers.close()


def of(server: GaussServer, password: str = "Gauss@123") -> GaussCatalog:
    """Its catalogue."""
    dsn = f"host=127.0.0.1 port={server.port} dbname=shop user=replica sslmode=disable"
    return GaussCatalog(SourceAddress(dsn, password, True))


@pytest.mark.integration
def test_own_types_and_generated_columns(gauss: GaussServer) -> None:
    """By OID, as the stream names them."""
    columns = {"id": "int8", "tiny": "int1", "text": "nvarchar2(9)", "sum": "numeric(10,2)"}
    gauss.store.create_table("app", "Orders", columns, key=("id",), generated=("sum",))
    with of(gauss) as catalog:
        table = catalog.look_up_table("app", "Orders")
        assert catalog.look_up_table("app", "orders") is None
        types = catalog.types([5545, 3969])
    assert table is not None
    assert table.primary_key == ("id",)
    assert [c.type_oid for c in table.columns] == [20, 5545, 3969, 1700]
    assert [c.type_modifier for c in table.columns][3] == 10 << 16 | 2 + 4
    assert [c.name for c in table.columns if c.is_generated] == ["sum"]
    assert {oid: one.name for oid, one in types.items()} == {5545: "int1", 3969: "nvarchar2"}


@pytest.mark.integration
@pytest.mark.parametrize("identity", ["d", "f", "n", "i"])
def test_identities(gauss: GaussServer, identity: str) -> None:
    """With the columns of its index where it has one."""
    index = ("b", "a") if identity == "i" else ()
    gauss.store.create_table(
        "app", "t", {"a": "int4", "b": "int4"}, key=("a",), identity=identity, index_key=index
    )
    with of(gauss) as catalog:
        table = catalog.look_up_table("app", "t")
    assert table is not None
    assert (table.identity, table.identity_index, table.primary_key) == (identity, index, ("a",))


@pytest.mark.integration
def test_refusal_stays_a_refusal(gauss: GaussServer) -> None:
    """A wrong password is not tried until the account locks."""
    with of(gauss, "wrong-word") as catalog:
        for _ in range(2):
            with pytest.raises(SourceRefusedError, match="reading the catalogue"):
                catalog.look_up_table("public", "t")
        assert catalog.failure_count == 1
    assert gauss.connections == 1
