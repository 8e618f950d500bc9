"""Ask the source's catalogue for what a landing does not have: one connection for all clients.

Clients that read more than a stream, such as this package's own daemon, look tables, keys and publications up
by SQL that only a database can answer. Such a SELECT goes to the source as it is, but for
``pg_replication_slots``, whose rows are the virtual slots.
"""

import asyncio
import concurrent.futures
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from psycopg import OperationalError, pq
from psycopg.pq.abc import PGresult

from gaussdecode.errors import ConfigError, GaussDecodeError, SourceError
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.messages import Column
from gaussdecode.serve.sql import Forwarded, Token, pieces_of
from gaussdecode.settings.dsn import parameters_of
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.postgresql.connection import Connection, connect
from gaussdecode.source.quoting import literal

_SECONDS: Final = 10  # arbitrary: the longest statement; others wait for it
_VIEW: Final = "pg_replication_slots"
_RECORD: Final = (
    "slot_name pg_catalog.name, plugin pg_catalog.name, slot_type text, datoid oid, database pg_catalog.name, "
    "temporary bool, active bool, active_pid int4, xmin xid, catalog_xmin xid, restart_lsn pg_lsn, "
    "confirmed_flush_lsn pg_lsn, wal_status text, safe_wal_size int8, two_phase bool, inactive_since timestamptz, "
    "conflicting bool, invalidation_reason text, failover bool, synced bool"
)
_NO_ALIAS: Final = frozenset(
    {
        "where", "on", "using", "join", "left", "right", "full", "inner", "cross", "natural", "order", "group",
        "limit", "offset", "union", "except", "intersect", "having", "window", "fetch", "for", "tablesample",
    }
)  # fmt: skip
_OWN: Final = (
    "pg_logical_",
    "pg_replication_slot_",
    "pg_create_",
    "pg_drop_",
    "pg_copy_",
    "pg_sync_",
)
"""Beginnings of functions that change slots of the source, or read them: never sent there."""
_READING: Final = frozenset({"select", "with", "values"})
_Result = TypeVar("_Result")
Slot = Mapping[str, str | int | bool | None]


def is_for_catalog(tokens: Sequence[Token]) -> bool:
    """Whether a statement that is not served may be sent to the source: it only reads, and no slot."""
    names = [token.text for token in tokens if token.kind in {"word", "quoted"}]
    return names[:1] != [] and names[0] in _READING and not any(n.startswith(_OWN) for n in names)


def with_slots(text: str, slots: Sequence[Slot]) -> str:
    """Put virtual slots in place of the view ``pg_replication_slots`` of a statement.

    Raises:
        ServeError: it has no text of SQL.
    """
    pieces = pieces_of(text)
    solid = [at for at, (kind, _) in enumerate(pieces) if kind != "space"]
    shown = [value for _, value in pieces]
    rows = literal(json.dumps(list(slots)))
    for number, at in enumerate(solid):
        kind, value = pieces[at]
        following = [pieces[each] for each in solid[number + 1 : number + 2]]
        if kind != "word" or value.lower() != _VIEW or following == [("op", ".")]:
            continue
        before = solid[max(0, number - 2) : number]
        if [pieces[each][1].lower() for each in before] == ["pg_catalog", "."]:
            for each in before:
                shown[each] = ""
        shown[at] = f"(SELECT * FROM pg_catalog.json_to_recordset({rows}) AS v({_RECORD}))"  # noqa: S608 - quoted above
        has_alias = bool(following) and (
            following[0][0] in {"word", "quoted"} and following[0][1].lower() not in _NO_ALIAS
        )
        if not has_alias:
            shown[at] += f" AS {_VIEW}"
    return "".join(shown)


class Catalog:
    """The source's catalogue.

    Args:
        dsn: connection string of the database, for a role that may only log in.
        pool: its threads wait for answers.
    """

    def __init__(self, dsn: str, pool: concurrent.futures.Executor) -> None:
        # An sslmode that the operator wrote down is meant; without one it is verify-full.
        is_chosen = "sslmode" in parameters_of(dsn)
        self._address = SourceAddress(dsn, is_insecure_allowed=is_chosen)
        self._pool = pool
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None

    def version(self) -> str:
        """The server's version, as ``17.2``.

        Raises:
            ConfigError: the connection string is wrong, or the role may too much.
            SourceError: it cannot be reached now.
        """
        try:
            connection = self._connect()
        except (ConfigError, ServeError) as error:
            raise ConfigError(f"serve.catalog-dsn: {error}") from None
        return connection.parameter("server_version").partition(" ")[0]

    def _connect(self) -> Connection:
        if self._connection is not None:
            return self._connection
        made = connect(
            self._address,
            is_replication=False,
            application_name="gaussdecode serve",
            patience=_SECONDS + 1,  # the server gives up first, and says so
        )
        try:
            made.query("SET client_encoding = 'UTF8'")
            made.query("SET default_transaction_read_only = on")
            made.query(f"SET statement_timeout = '{_SECONDS}s'")
            roles = "SELECT rolsuper OR rolreplication FROM pg_catalog.pg_roles"
            if made.query(f"{roles} WHERE rolname = current_user") != [("f",)]:
                raise ServeError(
                    "42501",
                    "the role of serve.catalog-dsn is a superuser, or has REPLICATION: clients would have its rights; "
                    "name a role that may log in and nothing else",
                )
        except BaseException:
            made.close()
            raise
        self._connection = made
        return made

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _asked(self, ask: Callable[[Connection], _Result]) -> _Result:
        def work() -> _Result:
            had_one = self._connection is not None
            try:
                return _alone(self._connect(), ask)
            except (GaussDecodeError, OperationalError) as error:
                self.close()
                if had_one:  # the database may have closed it long ago
                    return work()
                text = error.reason if isinstance(error, SourceError) else str(error)
                raise ServeError(
                    "08006", f"the source's catalogue cannot be asked: {text}"
                ) from None

        async with self._lock:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def prepare(self, text: str, types: Sequence[int], slots: Sequence[Slot]) -> Forwarded:
        """Have the source describe a statement.

        Args:
            text: one SELECT.
            types: OIDs of the types of its parameters, as far as the client gave them.
            slots: virtual slots.

        Raises:
            ServeError: the source refuses it, or cannot be reached.
        """
        command = with_slots(text, slots)

        def ask(connection: Connection) -> Forwarded:
            pgconn = connection.pgconn
            _good(connection.answer(lambda: pgconn.send_prepare(b"", command.encode(), types)))
            found = _good(connection.answer(lambda: pgconn.send_describe_prepared(b"")))
            return Forwarded(
                command,
                tuple(found.param_type(at) for at in range(found.nparams)),
                tuple(_column(found, at) for at in range(found.nfields)),
            )

        return await self._asked(ask)

    async def run(
        self, statement: Forwarded, parameters: Sequence[str | None], form: int
    ) -> list[list[bytes | None]]:
        """Carry a statement out.

        Args:
            statement: as prepared.
            parameters: texts.
            form: of all columns, 0 for text and 1 for binary.

        Raises:
            ServeError: the source refuses it, or cannot be reached.
        """
        values = [None if each is None else each.encode() for each in parameters]

        def ask(connection: Connection) -> list[list[bytes | None]]:
            pgconn, text = connection.pgconn, statement.text.encode()
            found = _good(
                connection.answer(
                    lambda: pgconn.send_query_params(text, values, statement.types, None, form)
                )
            )
            return [
                [found.get_value(row, column) for column in range(found.nfields)]
                for row in range(found.ntuples)
            ]

        return await self._asked(ask)


def _alone(connection: Connection, ask: Callable[[Connection], _Result]) -> _Result:
    """Ask something that changes nothing: not the database, and not the session, which other clients use too."""
    connection.query("BEGIN READ ONLY")
    try:
        return ask(connection)
    finally:
        connection.query("ROLLBACK; SELECT pg_catalog.pg_advisory_unlock_all()")


def _column(found: PGresult, at: int) -> Column:
    return Column((found.fname(at) or b"").decode(), found.ftype(at))


def _good(result: PGresult) -> PGresult:
    """A result that is no error.

    Raises:
        ServeError: the source refused.
        OperationalError: the connection is lost.
    """
    if result.status in {pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK}:
        return result
    code = result.error_field(pq.DiagnosticField.SQLSTATE)
    message = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY)
    if code is None or code[:2] in {b"57", b"08"}:
        raise OperationalError((message or result.error_message or b"").decode(errors="replace"))
    raise ServeError(code.decode(), f"the source's catalogue: {(message or b'').decode()}")
