"""Read comments of tables and columns from the database; the stream does not carry them.

openGauss must run the SQL too: its catalogue is that of PostgreSQL 9.2. One statement reads all, so the
comments are of one moment.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from gaussdecode.errors import ConfigError
from gaussdecode.model.title import split_title, table_title
from gaussdecode.operations.compare.compare import in_words_of_the_command
from gaussdecode.operations.connections import address_of, is_gaussdb, open_sql
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.connection import connect
from gaussdecode.source.quoting import literal
from gaussdecode.spark.target.comments import Described
from gaussdecode.wire.encoding import raw_name, spelled_name

Query = Callable[[str], Sequence[Sequence[str | None]]]
_OF_CLASS: Final = "d.objoid = c.oid AND d.classoid = 1259"  # pg_class, in every version
_TABLES: Final = (
    "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
)


def comments_sql(titles: Collection[str]) -> str:
    """SQL for the comments of tables: a row for each table and each of its columns.

    Args:
        titles: ``schema.name``, at least one.
    """
    names = (map(literal, map(raw_name, split_title(title))) for title in titles)
    among = ", ".join(f"({', '.join(pair)})" for pair in names)
    where = f"WHERE c.relkind IN ('r', 'p') AND (n.nspname, c.relname) IN ({among})"
    return (
        "SELECT n.nspname, c.relname, c.oid, 0 AS number, NULL::pg_catalog.text AS name, "
        f"d.description {_TABLES} LEFT JOIN pg_catalog.pg_description d ON {_OF_CLASS} "
        f"AND d.objsubid = 0 {where} "
        "UNION ALL SELECT n.nspname, c.relname, c.oid, a.attnum, a.attname::pg_catalog.text, "
        f"d.description {_TABLES} JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid "
        "AND a.attnum > 0 AND NOT a.attisdropped "
        f"LEFT JOIN pg_catalog.pg_description d ON {_OF_CLASS} AND d.objsubid = a.attnum {where}"
    )


def read_comments(query: Query, titles: Collection[str]) -> dict[str, Described]:
    """Read the comments of tables.

    Args:
        query: runs a statement and returns its rows, as text.
        titles: ``schema.name``.

    Returns:
        Comments by title, for tables that exist.

    Raises:
        SourceError: the server failed.
        SourceRefusedError: the server refuses.
    """
    found: dict[str, Described] = {}
    names: dict[str, dict[int, str]] = {}
    columns: dict[str, dict[int, str]] = {}
    for schema, table, oid, number, name, said in query(comments_sql(titles)) if titles else ():
        title = table_title(spelled_name(schema or ""), spelled_name(table or ""))
        text = _shown(said or "")
        if number == "0":
            names[title], columns[title] = names.get(title, {}), columns.get(title, {})
            found[title] = Described(int(oid or 0), text, names[title], columns[title])
            continue
        names.setdefault(title, {})[int(number or 0)] = spelled_name(name or "")
        if text:
            columns.setdefault(title, {})[int(number or 0)] = text
    return found


def _shown(text: str) -> str:
    """A text that any reader can show: bytes that are invalid in the database's encoding are marked."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def comments_of_dsn(
    dsn: str, titles: Collection[str], *, is_insecure_allowed: bool
) -> dict[str, Described]:
    """Read comments from a PostgreSQL server; see `read_comments`.

    Raises:
        ConfigError: the connection string cannot be used.
    """
    address = SourceAddress(dsn, is_insecure_allowed=is_insecure_allowed)
    try:
        with connect(address, is_replication=False) as session:
            return read_comments(session.query, titles)
    except ConfigError as error:
        raise ConfigError(in_words_of_the_command(str(error))) from None


def comments_of_config(config: Config, titles: Collection[str]) -> dict[str, Described]:
    """Read comments from the source of a slot, PostgreSQL or GaussDB; see `read_comments`.

    Raises:
        ConfigError: the source is not a server.
    """
    if is_gaussdb(config):
        with open_sql(config) as session:
            return read_comments(session.query, titles)
    with connect(address_of(config), is_replication=False) as session:
        return read_comments(session.query, titles)
