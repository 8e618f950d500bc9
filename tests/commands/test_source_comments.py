"""Comments asked of real servers of PostgreSQL, by both clients, and of a simulated GaussDB."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from kit.commands import Configure
from kit.gaussserver import GaussServer
from kit.postgres import Database

from gaussdecode.errors import ConfigError
from gaussdecode.operations.compare.source_comments import (
    comments_of_config,
    comments_of_dsn,
    read_comments,
)
from gaussdecode.settings.load import load
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.gaussdb.connection import connect as connect_gaussdb
from gaussdecode.source.quoting import literal
from gaussdecode.spark.target.comments import Described

pytestmark = pytest.mark.integration
ODD = 'it\'s "odd" \\x41 \\\\ `$$`;\n\t€ \U0001f418 ' + 10_000 * "é"
TABLES = '''
CREATE SCHEMA "S.1"; CREATE TABLE "S.1"."it's ""T""" (a int, gone int, "B c" int, none int);
ALTER TABLE "S.1"."it's ""T""" DROP COLUMN gone;
COMMENT ON TABLE "S.1"."it's ""T""" IS {odd}; COMMENT ON COLUMN "S.1"."it's ""T"""."B c" IS {odd};
COMMENT ON COLUMN "S.1"."it's ""T""".none IS '';
CREATE TABLE parts (id int, at date) PARTITION BY RANGE (at);
CREATE TABLE part PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
COMMENT ON TABLE parts IS 'whole'; COMMENT ON COLUMN parts.at IS 'day'; COMMENT ON TABLE part IS 'a part';
CREATE TABLE bare (x int); CREATE INDEX parts_at ON bare (x); COMMENT ON INDEX parts_at IS 'no table';
CREATE VIEW seen AS SELECT 1 AS x; COMMENT ON VIEW seen IS 'no table'
'''
ODD_TITLE = '"S.1"."it\'s ""T"""'
TITLES = [ODD_TITLE, "public.parts", "public.part", "public.bare", "public.seen", "public.nothing"]


def without_oids(found: dict[str, Described]) -> dict[str, Described]:
    """The same, of tables that are number 0."""
    return {
        title: Described(0, of.table, of.names, of.columns) for title, of in found.items() if of.oid
    }


WANTED = {
    ODD_TITLE: Described(0, ODD, {1: "a", 3: "B c", 4: "none"}, {3: ODD}),
    "public.parts": Described(0, "whole", {1: "id", 2: "at"}, {2: "day"}),
    "public.part": Described(0, "a part", {1: "id", 2: "at"}, {}),
    "public.bare": Described(0, "", {1: "x"}, {}),
}


def test_comments_of_a_database(database: Database) -> None:
    """Odd names and texts, partitioned tables, none at all; views and indexes are not tables."""
    database.execute(TABLES.format(odd=literal(ODD)))
    dsn = f"{database.dsn} sslmode=disable"
    found = comments_of_dsn(dsn, TITLES, is_insecure_allowed=True)
    assert without_oids(found) == WANTED
    assert found["public.bare"].oid == database.execute("SELECT 'bare'::regclass::oid::int8")[0][0]
    with connect_gaussdb(SourceAddress(dsn, None, True), is_replication=False) as session:
        assert read_comments(session.query, TITLES) == found
    assert comments_of_dsn(dsn, [], is_insecure_allowed=True) == {}


def test_letters_that_are_none_are_marked(database_15: Database) -> None:
    """In a database that promises nothing a byte may be no letter: it is shown as such, and the rest stays."""
    ascii_only = Database(database_15.server, f"{database_15.name}_ascii", encoding="SQL_ASCII")
    try:
        ascii_only.execute("CREATE TABLE t (x int)")
        ascii_only.execute("DO $$BEGIN EXECUTE 'COMMENT ON TABLE t IS E''a\\xffz'''; END$$")
        found = comments_of_dsn(
            f"{ascii_only.dsn} sslmode=disable", ["public.t"], is_insecure_allowed=True
        )
    finally:
        ascii_only.drop()
    assert found["public.t"].table == "a\ufffdz"


def test_comments_of_gaussdb(
    make_gauss: Callable[..., GaussServer], configure_gauss: Configure
) -> None:
    """With the configuration of a slot; its statement is one that openGauss has."""
    server = make_gauss()
    table = server.store.create_table("public", "t", {"id": "int4", "gone": "int4", "n": "text"})
    table = server.store.drop_column(table, "gone")
    server.store.put_table(dataclasses.replace(table, comments=((0, "all"), (3, "it's n"))))
    found = comments_of_config(load(Path(configure_gauss(server))), ["public.t", "public.none"])
    assert found == {"public.t": Described(table.oid, "all", {1: "id", 3: "n"}, {3: "it's n"})}


def test_connection_that_is_not_safe() -> None:
    """It is refused in words of the command, and the password is not said."""
    with pytest.raises(ConfigError, match=r"^--dsn: .* or give --allow-insecure$") as error:
        comments_of_dsn(
            "host=db.example sslmode=require password=hush", ["a.b"], is_insecure_allowed=False
        )
    assert "hush" not in str(error.value)
