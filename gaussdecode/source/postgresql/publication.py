"""Put a table into a publication, and take it out, where the daemon's role may.

A role may only alter publications that it owns. So an error carries the statement for somebody who may.
"""

from collections.abc import Sequence
from typing import Final

from gaussdecode.errors import ConfigError, SourceRefusedError
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.connection import Connection, connect
from gaussdecode.source.quoting import identifier, literal
from gaussdecode.source.sqlstate import Phase, judge

_NO_RIGHT: Final = "42501"  # an SQLSTATE
_CONNECT_SECONDS: Final = 3
_PATIENCE: Final = 5.0  # seconds for a statement; it may wait for a lock
_HAVE: Final = """
    SELECT t.pubname FROM pg_catalog.pg_publication_tables t
    WHERE t.pubname IN ({names}) AND t.schemaname = {schema} AND t.tablename = {table}
    ORDER BY t.pubname
"""
_LIST: Final = """
    SELECT p.pubname FROM pg_catalog.pg_publication p
    JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
    WHERE p.pubname IN ({names}) AND r.prrelid = pg_catalog.to_regclass({title})
    ORDER BY p.pubname
"""


def add_table(address: SourceAddress, publications: Sequence[str], schema: str, table: str) -> str:
    """Add a table to the first of the configured publications, unless one of them has it.

    Returns:
        What was done, in words.

    Raises:
        ConfigError: the role may not, with the statement to run.
        SourceError: the server cannot be asked.
    """
    with _connected(address) as connection:
        found = _names(connection, _HAVE, publications, schema, table)
        if found:
            return f"publication {found[0]} has it already"
        target = publications[0]
        _alter(connection, f"ALTER PUBLICATION {identifier(target)} ADD TABLE {_of(schema, table)}")
    return f"added to publication {target}"


def drop_table(
    address: SourceAddress, publications: Sequence[str], schema: str, table: str
) -> str | None:
    """Take a table out of each configured publication that lists it.

    Returns:
        What was done, in words; None where none has it.

    Raises:
        ConfigError: one has it with all tables or its schema, or the role may not.
        SourceError: the server cannot be asked.
    """
    with _connected(address) as connection:
        listing = _names(connection, _LIST, publications, schema, table)
        if not listing:
            others = _names(connection, _HAVE, publications, schema, table)
            if not others:
                return None
            raise ConfigError(
                f"publication {others[0]} has it FOR ALL TABLES or by its schema: leave it out with "
                "decoding.white-table-list, and reload"
            )
        statements = [
            f"ALTER PUBLICATION {identifier(name)} DROP TABLE {_of(schema, table)}"
            for name in listing
        ]
        _alter(connection, "; ".join(statements))  # one transaction: all of them, or none
    return f"taken out of publication {', '.join(listing)}"


def _connected(address: SourceAddress) -> Connection:
    return connect(
        address,
        is_replication=False,
        patience=_PATIENCE,
        connect_timeout=str(_CONNECT_SECONDS),
        application_name="gaussdecode ctl",
    )


def _names(
    connection: Connection, query: str, publications: Sequence[str], schema: str, table: str
) -> list[str]:
    rows = connection.query(
        query.format(
            names=", ".join(map(literal, publications)),
            schema=literal(schema),
            table=literal(table),
            title=literal(_of(schema, table)),
        )
    )
    return [name for (name,) in rows if name is not None]


def _alter(connection: Connection, statement: str) -> None:
    try:
        connection.query(statement)
    except SourceRefusedError as error:
        told = error.reason.removesuffix(f"; {judge(Phase.COMMAND, error.sqlstate).advice}")
        if error.sqlstate != _NO_RIGHT:
            raise ConfigError(told) from None
        raise ConfigError(
            f"{told}; have somebody who may run it, and ask again: {statement};"
        ) from None


def _of(schema: str, table: str) -> str:
    return f"{identifier(schema)}.{identifier(table)}"
