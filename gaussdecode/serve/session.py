"""One client, from its first byte to its last: log-in, then commands until it ends.

An error of a command is an ErrorResponse, and the session goes on. An error of the protocol or of the log-in
ends it, as FATAL. What is not expected is SQLSTATE XX000 for the client; the log has its kind and its place,
and neither has a traceback.
"""

import asyncio
import contextlib
import dataclasses
import re
import secrets
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from gaussdecode.errors import GaussDecodeError
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.lsn import Lsn
from gaussdecode.serve import messages, sql, statements
from gaussdecode.serve.block import Output
from gaussdecode.serve.catalog import is_for_catalog
from gaussdecode.serve.connection import ClientGoneError, Connection
from gaussdecode.serve.errors import ServeError
from gaussdecode.serve.feed import Feed
from gaussdecode.serve.messages import Body, Column, Startup, protocol_error
from gaussdecode.serve.reader import ReadPosition, every_table
from gaussdecode.serve.slots import Slot
from gaussdecode.serve.statements import BOOL, INT4, INT8, LSN, OID, TEXT, Scalar
from gaussdecode.serve.stream import SenderTimeoutError, Sent, Stream
from gaussdecode.serve.users import ScramExchange, Sha256Exchange, User

if TYPE_CHECKING:
    from gaussdecode.serve.server import Server

_log = get_logger("serve")
_REPORTED: Final = {
    "server_version": "server_version",
    "server_encoding": "server_encoding",
    "client_encoding": "client_encoding",
    "application_name": "application_name",
    "datestyle": "DateStyle",
    "integer_datetimes": "integer_datetimes",
    "intervalstyle": "IntervalStyle",
    "is_superuser": "is_superuser",
    "session_authorization": "session_authorization",
    "standard_conforming_strings": "standard_conforming_strings",
    "timezone": "TimeZone",
    "in_hot_standby": "in_hot_standby",
    "default_transaction_read_only": "default_transaction_read_only",
}
START_LSN: Final = "gaussdecode.start_lsn"
"""Setting: where slots that the session creates begin."""
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_FREE: Final = frozenset(
    {
        "application_name", "extra_float_digits", "search_path", "datestyle", "timezone", "client_min_messages",
        "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "wal_sender_timeout",
        "bytea_output", "intervalstyle", "default_transaction_read_only", "row_security", "geqo",
        "idle_session_timeout", "transaction_timeout",
        START_LSN,
    }
)  # fmt: skip
"""Settings that a client may set; what `wal_sender_timeout`, `application_name` and ours say is followed."""
_FOR_CATALOG: Final = frozenset({"0A000", "42601", "42703", "42883"})
"""Errors of statements that a database may be able to answer."""
_UTF8: Final = frozenset({"utf8", "utf-8", "unicode", "'utf8'", "utf_8", "default"})
_ISO_STYLE: Final = re.compile(r"iso\s*,\s*(ymd|dmy|mdy)")
_DURATION: Final = re.compile(r"([0-9]{1,10})\s*(ms|s|min|h|d)?")
_FACTORS: Final = {None: 1, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_STARTUP_KEYS: Final = frozenset({"user", "database", "replication", "options"})
_MOST_PREPARED: Final = 1000  # arbitrary
_NO_SIGN: Final = ServeError(
    "01000",
    "style b has no sign for a large value that an update did not change: PostgreSQL does not send it, and the "
    "column is missing from the row",
    hint="Do not take a missing column for NULL. Styles t and j, pgoutput and test_decoding have a sign.",
)


def milliseconds(text: str) -> int:
    """Read a time as PostgreSQL's settings have it; without a unit, milliseconds.

    Raises:
        ServeError: it is none.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ServeError("22023", "a time is a whole number with ms, s, min, h or d, such as 60s")
    return int(match[1]) * _FACTORS[match[2]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Prepared:
    """A statement of the extended protocol; `statement` is None for an empty one."""

    statement: sql.Statement | None
    types: tuple[int, ...]
    size: int  # of its text


@dataclasses.dataclass(slots=True)
class _Portal:
    """A bound statement.

    Attributes:
        prepared: the statement.
        parameters: texts of its parameters.
        formats: forms of the columns of its answer.
        fetch: rows that are wanted now.
        answer: what is left, where the client has fetched a part.
        is_done: all of it was fetched in parts.
    """

    prepared: _Prepared
    parameters: tuple[str | None, ...]
    formats: tuple[int, ...]
    fetch: statements.Fetch = dataclasses.field(default_factory=statements.Fetch)
    answer: statements.Answer | None = None
    is_done: bool = False

    async def close(self) -> None:
        """Give up what is left of the answer; a slot that it holds is released."""
        if self.answer is not None:
            await self.answer.rows.aclose()
        self.answer = None

    @property
    def size(self) -> int:
        """Of its parameters."""
        return sum(len(text) for text in self.parameters if text is not None)


class Session:
    """One client.

    Args:
        server: has everything that clients share.
        connection: of the client.
        process: its number.

    Attributes:
        stream: what is sent now; None for nothing.
        slot_name: of the stream.
        application: name that the client gave itself.
        user: name of the user; empty before the log-in.
    """

    def __init__(self, server: "Server", connection: Connection, process: int) -> None:
        self.server = server
        self.connection = connection
        self.process = process
        self.secret = secrets.randbits(32)
        self.stream: Stream | None = None
        self.slot_name = ""
        self.user = ""
        self._database = ""
        self.began = asyncio.get_running_loop().time()
        self._account: User | None = None
        self._is_replication = False
        self._is_opengauss = False
        self._settings: dict[str, str] = {}
        self._prepared: dict[str, _Prepared] = {}
        self._portals: dict[str, _Portal] = {}
        self._transaction = b"I"
        self._is_in = False

    # ---- life ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the client until one of the two ends it."""
        try:
            try:
                async with asyncio.timeout(self.server.settings.login_timeout):
                    is_in = await self._log_in()
            except TimeoutError:
                raise ServeError(
                    "08006", "the log-in took too long", hint="See serve.login-timeout."
                ) from None
            self._is_in = is_in
            if is_in:
                self.connection.limit = self.server.settings.message_bytes
                await self._serve()
        except ClientGoneError:
            pass
        except ServeError as problem:
            self._fatal(problem)
        except SenderTimeoutError:
            self._fatal(
                ServeError("08006", "terminating walsender process due to replication timeout")
            )
        except asyncio.CancelledError:
            self._fatal(ServeError("57P01", "terminating connection: the server stops"))
        except Exception as error:  # noqa: BLE001 (one client must not end the others)
            self._fatal(self._unexpected(error))
        finally:
            await self._leave()

    def _fatal(self, problem: ServeError) -> None:
        if not self._is_in:
            self.server.counts.refuse("login")
        _log.warning(
            Event.CLIENT_REFUSED,
            client=self.connection.peer,
            user=self.user,
            sqlstate=problem.sqlstate,
            reason=problem.message,
        )
        self.connection.write(messages.error(problem, "FATAL"))

    def _unexpected(self, error: BaseException) -> ServeError:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = "" if trace is None else f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}"
        _log.error(
            Event.ERROR, client=self.connection.peer, reason=f"{type(error).__name__} in {place}"
        )
        return ServeError("XX000", "internal error", hint="The log of the server has more.")

    async def _leave(self) -> None:
        try:
            await self._close_portals()
            for slot in list(self.server.slots):
                if slot.process == self.process:
                    await self.release(slot)
                if slot.is_temporary and slot.owner_process == self.process:
                    self.server.slots.drop(slot.name)
        except GaussDecodeError as error:
            _log.error(Event.ERROR, client=self.connection.peer, reason=str(error))
        finally:
            self.connection.close()

    # ---- log-in ----------------------------------------------------------------------------

    async def _log_in(self) -> bool:
        """Read the startup packet and check who it is; False where the client wanted no session."""
        startup = await self._startup()
        if startup is None:
            return False
        self.user = startup.parameters.get("user", "")
        if not self.user:
            raise ServeError("28000", "no PostgreSQL user name specified in startup packet")
        self._check_unencrypted()
        await self._authenticate(startup)
        self._take_parameters(startup)
        for name, shown in _REPORTED.items():
            self.connection.write(messages.parameter_status(shown, self.show(name)))
        self.connection.write(messages.key_data(self.process, self.secret))
        self.connection.write(messages.ready())
        _log.info(
            Event.CLIENT_CONNECTED,
            client=self.connection.peer,
            user=self.user,
            application=self.show("application_name"),
            is_encrypted=self.connection.is_encrypted,
        )
        return True

    async def _startup(self) -> Startup | None:
        asked: set[int] = set()
        while True:
            startup = await self.connection.read_startup()
            if startup.code in asked:
                raise protocol_error("the same request for encryption twice")
            asked.add(startup.code)
            if startup.code == messages.SSL_REQUEST:
                context = self.server.tls()
                if context is None or self.connection.is_encrypted:
                    self.connection.write(b"N")
                else:
                    await self.connection.start_tls(context, self.server.settings.login_timeout)
            elif startup.code == messages.GSSENC_REQUEST:
                self.connection.write(b"N")
            elif startup.code == messages.CANCEL_REQUEST:
                if startup.key is not None:
                    self.server.cancel(*startup.key)
                return None
            else:
                return startup

    def _check_unencrypted(self) -> None:
        if self.server.needs_tls(self.connection.peer) and not self.connection.is_encrypted:
            raise ServeError(
                "28000",
                "this server accepts only encrypted connections from there",
                hint="Connect with sslmode=require or better.",
            )

    async def _authenticate(self, startup: Startup) -> None:
        unknown = [name for name in startup.parameters if name.startswith("_pq_.")]
        is_opengauss = self._is_opengauss = startup.minor in messages.OPENGAUSS_MINORS
        if unknown or (startup.minor and not is_opengauss):
            self.connection.write(messages.negotiation(0, unknown))
        users = self.server.users
        if users is None:
            self.connection.write(messages.authentication(0))
            return
        account = users.get(self.user)
        if is_opengauss:
            await self._sha256(account, startup.minor)
        else:
            await self._scram(account)
        self._account = account
        self.connection.write(messages.authentication(0))

    async def _scram(self, account: User | None) -> None:
        assert self.server.users is not None
        verifier = account.scram if account is not None else None
        exchange = ScramExchange(verifier or self.server.users.decoy(self.user))
        self.connection.write(messages.authentication(10, b"SCRAM-SHA-256\0\0"))
        body = Body(await self._password())
        mechanism = body.text()
        if mechanism != "SCRAM-SHA-256":
            raise protocol_error("the client selected an invalid SASL authentication mechanism")
        first = body.value() or b""
        body.end()
        try:
            self.connection.write(messages.authentication(11, exchange.first(first)))
            final = exchange.final(await self._password())
        except ValueError:
            raise self._refused() from None
        if verifier is None:
            raise self._refused()
        self.connection.write(messages.authentication(12, final))

    async def _sha256(self, account: User | None, minor: int) -> None:
        assert self.server.users is not None
        verifier = account.sha256 if account is not None else None
        exchange = Sha256Exchange(verifier or self.server.users.decoy_sha256(self.user), minor)
        self.connection.write(messages.authentication(10, exchange.challenge))
        if not exchange.accepts(await self._password()) or verifier is None:
            raise self._refused()

    async def _password(self) -> bytes:
        tag, body = await self.connection.read_message()
        if tag != b"p":
            raise (
                ClientGoneError
                if tag == b"X"
                else protocol_error("expected an answer to the log-in")
            )
        return body

    def _refused(self) -> ServeError:
        return ServeError("28P01", f'password authentication failed for user "{self.user}"')

    def _take_parameters(self, startup: Startup) -> None:
        given = startup.parameters
        mode = given.get("replication", "false").lower()
        if mode in {"true", "on", "yes", "1"}:
            raise sql.not_served(
                "physical replication (replication=true); use replication=database:"
            )
        if mode not in {"database", "false", "off", "no", "0"}:
            raise ServeError("22023", 'invalid value for parameter "replication"')
        self._is_replication = mode == "database"
        database = given.get("database", self.user)
        if database not in self.server.databases:
            known = " and ".join(f'"{name}"' for name in self.server.databases)
            raise ServeError(
                "3D000",
                f'database "{database[:64]}" does not exist',
                hint=f"The landing has several sources, each a database by its name: {known}."
                if self.server.has_several
                else f"This server has the database {known}.",
            )
        self._database = database
        for name, value in given.items():
            if name not in _STARTUP_KEYS and not name.startswith("_pq_."):
                self._set_at_start(name, value)
        # Each option is matched by itself: over all of them the search would take quadratic time.
        words = re.sub(r"(?<!\S)-c\s+", "-c", given.get("options", ""))
        for word in re.findall(r"(?:\\.|\S)+", words):
            option = re.match(r"(?:-c|--)([\w.-]+)=(.*)", word, re.DOTALL)
            if option is not None:
                value = re.sub(r"\\(.)", r"\1", option[2])
                self._set_at_start(option[1].replace("-", "_"), value)

    def _set_at_start(self, name: str, value: str) -> None:
        try:
            self._assign(name.lower(), value)
        except ServeError as problem:
            if problem.sqlstate != "42704":  # drivers send settings that matter to them alone
                raise

    # ---- commands --------------------------------------------------------------------------

    async def _serve(self) -> None:
        is_skipping = False  # after an error of the extended protocol, up to its Sync
        while True:
            tag, body = await self.connection.read_message()
            if tag == b"X":
                return
            if tag == b"S":
                is_skipping = False
                if self._transaction != b"T":
                    await self._close_portals()
                self.connection.write(messages.ready(self._transaction))
            elif tag == b"Q":
                is_skipping = False
                await self._simple(body)
            elif tag in _IGNORED or is_skipping:
                pass
            else:
                try:
                    await self._extended(tag, body)
                except ServeError as problem:
                    if problem.sqlstate == "08P01":
                        raise
                    is_skipping = True
                    self._tell(problem)
                except GaussDecodeError as error:
                    is_skipping = True
                    self._tell(ServeError("58000", str(error)))
                except (ClientGoneError, asyncio.CancelledError, SenderTimeoutError):
                    raise
                except Exception as error:  # noqa: BLE001 (the session goes on)
                    is_skipping = True
                    self._tell(self._unexpected(error))
            await self.connection.drain()

    def _tell(self, problem: ServeError) -> None:
        if self._transaction == b"T":
            self._transaction = b"E"
        self.connection.write(messages.error(problem))

    async def _simple(self, body: bytes) -> None:
        reader = Body(body)
        text = reader.text()
        reader.end()
        try:
            await self._query(text)
        except ServeError as problem:
            if problem.sqlstate == "08P01":
                raise
            self._tell(problem)
        except (ClientGoneError, asyncio.CancelledError, SenderTimeoutError):
            raise
        except GaussDecodeError as error:
            self._tell(ServeError("58000", str(error)))
        except Exception as error:  # noqa: BLE001 (the session goes on)
            self._tell(self._unexpected(error))
        self.connection.write(messages.ready(self._transaction))

    async def _query(self, text: str) -> None:
        parts = sql.statements_of(text)
        if not parts:
            self.connection.write(messages.message(b"I"))
        for tokens in parts:
            command = sql.parse_command(tokens)
            if command is not None:
                if not self._is_replication:
                    raise ServeError(
                        "42601",
                        "commands of replication need a replication connection",
                        hint="Connect with replication=database.",
                    )
                await self._command(command)
                continue
            statement = await self._statement(tokens, text if len(parts) == 1 else "", ())
            columns = statements.describe(statement)
            if columns is not None:
                self.connection.write(messages.row_description(columns))
            await self._answer(statement, (), ())

    async def _statement(
        self, tokens: Sequence[sql.Token], text: str, types: Sequence[int]
    ) -> sql.Statement:
        """Read a statement, or have the landing or the source's catalogue describe it where it is not served here.

        Args:
            tokens: of the statement.
            text: of the statement; empty where it is one of several.
            types: OIDs of the types of its parameters, as far as the client gave them.
        """
        try:
            statement = sql.parse_sql(tokens)
            statements.describe(statement)
        except ServeError as problem:
            if problem.sqlstate not in _FOR_CATALOG:
                raise
            known = await self._known(tokens)
            if known is not None:
                return known
            catalog = self.server.catalog
            if catalog is None or not text or not is_for_catalog(tokens):
                raise
            return await catalog.prepare(text, types, statements.slots_for_catalog(self))
        return statement

    async def _known(self, tokens: Sequence[sql.Token]) -> sql.Known | None:
        """What the landing tells of the catalogue."""
        account, feed = self._account, self.feed()
        wanted = every_table if account is None else account.wants
        settings = statements.listed(self.settings())
        return await feed.call(
            lambda: self.server.landed[self._database].answer(tokens, self.user, settings, wanted)
        )

    async def of_catalog(
        self, statement: sql.Forwarded, parameters: Sequence[str | None], form: int
    ) -> list[list[bytes | None]]:
        """Rows that the source's catalogue gives."""
        assert self.server.catalog is not None
        return await self.server.catalog.run(statement, parameters, form)

    async def _answer(
        self,
        statement: sql.Statement,
        parameters: Sequence[str | None],
        formats: Sequence[int],
    ) -> None:
        await self._enter(statement)
        answer = await statements.run(self, statement, parameters, formats)
        counted = 0
        async with contextlib.aclosing(answer.rows) as pieces:  # a slot is given back at once
            async for piece, rows in pieces:
                counted += rows
                self.connection.write(piece)
                await self.connection.drain()
        self.connection.write(messages.complete(answer.tag.format(counted)))

    async def _enter(self, statement: sql.Statement) -> None:
        """Follow the transaction block, which bounds portals; nothing else of it means something here."""
        if isinstance(statement, sql.Plain):
            self._begin_or_end(statement.tag)
            if self._transaction == b"I":
                await self._close_portals()
        elif self._transaction == b"E":
            raise ServeError("25P02", "current transaction is aborted; send ROLLBACK")

    async def _close_portals(self) -> None:
        """Portals end with their transaction."""
        portals = list(self._portals.values())
        self._portals.clear()
        for portal in portals:
            await portal.close()

    def _begin_or_end(self, tag: str) -> None:
        if tag in {"BEGIN", "START TRANSACTION"}:
            self._transaction = b"T"
        elif tag in {"COMMIT", "ROLLBACK"}:
            self._transaction = b"I"

    # ---- extended protocol -----------------------------------------------------------------

    async def _extended(self, tag: bytes, body: bytes) -> None:
        act = _EXTENDED.get(tag)
        if act is None:
            what = "a function call" if tag == b"F" else f"message type {tag[0]:#04x}"
            raise sql.not_served(what) if tag == b"F" else protocol_error(f"unexpected {what}")
        await getattr(self, act)(Body(body))

    async def _parse(self, body: Body) -> None:
        name, text = body.text(), body.text()
        types = tuple(body.int32() for _ in range(body.count()))
        body.end()
        parts = sql.statements_of(text)
        if len(parts) > 1:
            raise ServeError("42601", "cannot insert multiple commands into a prepared statement")
        if name and name in self._prepared:
            raise ServeError("42P05", f'prepared statement "{name[:64]}" already exists')
        if len(self._prepared) >= _MOST_PREPARED:
            raise ServeError("53400", f"more than {_MOST_PREPARED} prepared statements")
        statement = await self._statement(parts[0], text, types) if parts else None
        if isinstance(statement, sql.Forwarded):
            types = statement.types
        wanted = max(
            (sql.parameter_number(t) for part in parts for t in part if t.kind == "param"),
            default=0,
        )
        types = tuple(types) + (0,) * (wanted - len(types))
        self._prepared.pop(name, None)
        self._check_held(len(text))
        self._prepared[name] = _Prepared(statement, types, len(text))
        self.connection.write(messages.message(b"1"))

    async def _bind(self, body: Body) -> None:
        portal, name = body.text(), body.text()
        prepared = self._prepared.get(name)
        if prepared is None:
            raise ServeError("26000", f'prepared statement "{name[:64]}" does not exist')
        forms = [body.int16() for _ in range(body.count())]
        values = [body.value() for _ in range(body.count())]
        formats = tuple(body.int16() for _ in range(body.count()))
        body.end()
        if any(form not in {0, 1} for form in (*forms, *formats)):
            raise protocol_error("a format is neither 0 nor 1")
        if len(forms) not in {0, 1, len(values)} or len(values) != len(prepared.types):
            raise protocol_error(
                f"bind message supplies {len(values)} parameters, but the statement requires {len(prepared.types)}"
            )
        columns = (
            statements.describe(prepared.statement) if prepared.statement is not None else None
        )
        if len(formats) not in {0, 1, len(columns or ())}:
            raise protocol_error("bind message has another number of result formats than columns")
        parameters = tuple(
            _text_of(value, oid, statements.form_of(forms, index))
            for index, (value, oid) in enumerate(zip(values, prepared.types, strict=True))
        )
        if portal in self._portals:
            await self._portals[portal].close()
        if len(self._portals) >= _MOST_PREPARED:
            raise ServeError("53400", f"more than {_MOST_PREPARED} portals")
        bound = _Portal(prepared, parameters, formats)
        self._portals.pop(portal, None)
        self._check_held(bound.size)
        self._portals[portal] = bound
        self.connection.write(messages.message(b"2"))

    def _check_held(self, size: int) -> None:
        """Bound what a client makes the server keep: all together as long as the longest message."""
        held = sum(prepared.size for prepared in self._prepared.values())
        held += sum(portal.size for portal in self._portals.values())
        if held + size > self.server.settings.message_bytes:
            raise ServeError(
                "53200",
                "prepared statements and portals of this session are too large together",
                hint="Close some, or raise serve.message-bytes.",
            )

    async def _describe(self, body: Body) -> None:
        kind, name = body.take(1), body.text()
        body.end()
        formats: Sequence[int] = ()
        if kind == b"S":
            prepared = self._prepared.get(name)
            if prepared is None:
                raise ServeError("26000", f'prepared statement "{name[:64]}" does not exist')
            types = [oid or TEXT for oid in prepared.types]
            data = struct.pack(f">h{len(types)}I", len(types), *types)
            self.connection.write(messages.message(b"t", data))
        else:
            portal = self._portal(name)
            prepared, formats = portal.prepared, portal.formats
        columns: tuple[Column, ...] | None = None
        if prepared.statement is not None:
            columns = statements.describe(prepared.statement)
        none = messages.message(b"n")
        self.connection.write(
            none if columns is None else messages.row_description(columns, formats)
        )

    def _portal(self, name: str) -> _Portal:
        portal = self._portals.get(name)
        if portal is None:
            raise ServeError("34000", f'portal "{name[:64]}" does not exist')
        return portal

    async def _execute(self, body: Body) -> None:
        portal = self._portal(body.text())
        most = body.int32()
        body.end()
        statement = portal.prepared.statement
        if statement is None:
            self.connection.write(messages.message(b"I"))
        elif most > 0 or portal.answer is not None or portal.is_done:
            await self._fetch(portal, statement, most)
        else:
            await self._answer(statement, portal.parameters, portal.formats)

    async def _fetch(self, portal: _Portal, statement: sql.Statement, most: int) -> None:
        """Send a part of an answer: so many rows, or all that are left."""
        if portal.answer is None and not portal.is_done:
            await self._enter(statement)
            portal.answer = await statements.run(
                self, statement, portal.parameters, portal.formats, portal.fetch
            )
        tag = "SELECT {}" if portal.answer is None else portal.answer.tag
        counted = 0
        while portal.answer is not None:
            if most > 0 and counted >= most:
                self.connection.write(messages.message(b"s"))
                return
            portal.fetch.most = most - counted if most > 0 else None
            try:
                piece, rows = await anext(portal.answer.rows)
            except StopAsyncIteration:
                portal.answer, portal.is_done = None, True
                break
            except BaseException:
                portal.answer = None
                raise
            counted += rows
            self.connection.write(piece)
            await self.connection.drain()
        self.connection.write(messages.complete(tag.format(counted)))

    async def _close(self, body: Body) -> None:
        kind, name = body.take(1), body.text()
        body.end()
        if kind == b"S":
            self._prepared.pop(name, None)
        elif name in self._portals:
            await self._portals.pop(name).close()
        self.connection.write(messages.message(b"3"))

    async def _flush(self, body: Body) -> None:
        body.end()

    # ---- commands of replication -----------------------------------------------------------

    async def _command(self, command: sql.Command) -> None:
        if isinstance(command, sql.StartReplication):
            await self._start(command)
            return
        if isinstance(command, sql.DropSlot):
            self.drop_slot(command.name)
            self.connection.write(messages.complete("DROP_REPLICATION_SLOT"))
            return
        if isinstance(command, sql.IdentifySystem):
            facts = self.server.facts(self._database)
            columns = [("systemid", TEXT), ("timeline", INT8), ("xlogpos", TEXT), ("dbname", TEXT)]
            end = str(Lsn(await self.end_lsn()))
            timeline = await self.server.timeline(self._database)
            row: list[Scalar] = [facts.system_identifier, timeline, end, self._database]
            tag = "IDENTIFY_SYSTEM"
        elif isinstance(command, sql.ReadSlot):
            slot = self.server.slots.get(command.name)
            columns = [("slot_type", TEXT), ("restart_lsn", TEXT), ("restart_tli", INT8)]
            timeline = await self.server.timeline(self._database)
            row = ["logical", str(Lsn(slot.lsn)), timeline or None]
            tag = "READ_REPLICATION_SLOT"
        else:
            if command.two_phase:
                raise sql.not_served("a slot with two_phase")
            slot = await self.create_slot(
                command.name, command.plugin, is_temporary=command.is_temporary
            )
            columns = [
                ("slot_name", TEXT), ("consistent_point", TEXT), ("snapshot_name", TEXT), ("output_plugin", TEXT),
            ]  # fmt: skip
            row = [slot.name, str(Lsn(slot.lsn)), None, slot.plugin]
            tag = "CREATE_REPLICATION_SLOT"
        shown = [Column(name, oid) for name, oid in columns]
        self.connection.write(messages.row_description(shown))
        cells = [
            statements.encode(value, column, 0) for value, column in zip(row, shown, strict=True)
        ]
        self.connection.write(messages.data_row(cells))
        self.connection.write(messages.complete(tag))

    async def _start(self, command: sql.StartReplication) -> None:
        slot = self.acquire(command.name)
        try:
            options = dict(command.options)
            timeout = options.pop("sender-timeout", None) or self._settings.get(
                "wal_sender_timeout"
            )
            seconds = self.server.settings.sender_timeout
            if timeout is not None:
                seconds = milliseconds(timeout) / 1000
            include_snapshot = statements.take_include_snapshot(options, is_by_csn=self.is_by_csn)
            output = self.output_of(slot.plugin, options)
            kind = (slot.plugin, frozenset(options.items()))
            start = dataclasses.replace(statements.start_of(slot), lsn=max(slot.lsn, command.lsn))
            self.stream = Stream(
                self.connection, self.feed(), slot, output, kind, start,
                self.server.counts.of(slot), seconds,
                is_opengauss=self._is_opengauss, include_snapshot=include_snapshot,
            )  # fmt: skip
            self.slot_name = slot.name
            slot.stream(is_active=True)
            _log.info(
                Event.CLIENT_STREAMS,
                client=self.connection.peer,
                user=self.user,
                slot_name=slot.name,
                plugin=slot.plugin,
                lsn=str(Lsn(start.lsn)),
            )
            await self.stream.run()
        finally:
            if self.stream is not None:
                slot.stream(is_active=False)
                _log.info(
                    Event.CLIENT_STREAM_ENDED,
                    client=self.connection.peer,
                    user=self.user,
                    slot_name=slot.name,
                    lsn=str(Lsn(slot.lsn)),
                    rows=self.stream.rows,
                    bytes=self.stream.bytes,
                )
            self.stream = None
            await self.release(slot)
        self.connection.write(messages.complete("COPY 0"))
        self.connection.write(messages.complete("START_REPLICATION"))

    # ---- what statements use ---------------------------------------------------------------

    @property
    def database(self) -> str:
        """Name of the database."""
        return self._database

    @property
    def version(self) -> str:
        """Product and version, as SQL shows them."""
        return self.server.opengauss_text if self._is_opengauss else self.server.version_text

    @property
    def is_by_csn(self) -> bool:
        """Whether positions are CSNs."""
        return self.server.feeds.landing.is_by_csn

    def slots(self) -> list[Slot]:
        """All slots."""
        return list(self.server.slots)

    def streams(self) -> list[Mapping[str, Scalar]]:
        """What is sent to clients now."""
        return self.server.streams()

    def sent(self, slot: Slot) -> Sent:
        """What counts what a slot sends."""
        return self.server.counts.of(slot)

    async def end_lsn(self) -> int:
        """LSN up to which everything has landed."""
        return (await self.feed().newest()).lsn

    def feed(self) -> Feed:
        """What the user gets: the tables that it may read."""
        account, source = self._account, self.server.source_of(self._database)
        if account is None or account.tables is None:
            return self.server.feeds.feed(None, source=source)
        return self.server.feeds.feed(account.tables, account.wants, source)

    def output_of(self, plugin: str, options: Mapping[str, str | None]) -> Output:
        """Make a plug-in; the client is told of what its output cannot show."""
        made = self.server.plugin(plugin)(options)
        statements.check_order(options.get("output-order"), is_by_csn=self.is_by_csn)
        if not made.has_unchanged and self.server.facts(self._database).kind == "postgresql":
            self.connection.write(messages.warning(_NO_SIGN))
        return made

    async def create_slot(self, name: str, plugin: str, *, is_temporary: bool) -> Slot:
        """Create a slot at the end of what has landed, or where the session's setting says."""
        self.server.plugin(plugin)
        at = await self._new_position()
        slot = Slot(
            name, plugin, self.user, self.database, self.server.facts(self._database).landing_id,
            at.n, at.epoch, at.lsn, is_temporary=is_temporary,
        )  # fmt: skip
        slot.owner_process = self.process
        self.server.slots.create(slot)
        _log.info(
            Event.CLIENT_SLOT, slot_name=name, user=self.user, act="create", lsn=str(Lsn(at.lsn))
        )
        return slot

    async def _new_position(self) -> ReadPosition:
        wanted = self._settings.get(START_LSN, LATEST)
        if wanted == LATEST:
            return await self.feed().newest()
        if wanted == EARLIEST:
            return await self.feed().oldest()
        return await self.feed().position(Lsn.parse(wanted))

    def _own(self, name: str) -> Slot:
        """A slot that this user may use."""
        slot = self.server.slots.get(name)
        if self._account is not None and slot.owner != self.user:
            raise ServeError(
                "42501",
                f'replication slot "{name}" belongs to user "{slot.owner}"',
                hint="Log in as that user, or create a slot of your own.",
            )
        return slot

    def drop_slot(self, name: str) -> None:
        """Drop a slot."""
        if name not in self.server.slots.damaged or self._account is not None:
            self._own(name)  # of a damaged one nobody knows the owner
        self.server.slots.drop(name)
        self.server.counts.forget(name)
        _log.info(Event.CLIENT_SLOT, slot_name=name, user=self.user, act="drop")

    async def advance_slot(self, name: str, lsn: int) -> Slot:
        """Move a slot on without sending anything."""
        if not lsn:
            raise ServeError("22023", "invalid target WAL LSN")
        slot = self.acquire(name)
        try:
            at = await self.feed().advanced(statements.start_of(slot), lsn)
            slot.confirm(at.n, at.epoch, at.lsn)
        finally:
            await self.release(slot)
        return slot

    def acquire(self, name: str) -> Slot:
        """Take a slot."""
        if self._own(name).database != self._database:
            raise ServeError(
                "55000",
                f'replication slot "{name}" was not created in this database',
                hint=f'Connect to database "{self.server.slots.get(name).database}".',
            )
        return self.server.slots.acquire(name, self.user, self.process)

    async def release(self, slot: Slot) -> None:
        """Give a slot back, after its position is on disk."""
        try:
            await asyncio.shield(self.server.save())
        finally:
            self.server.slots.release(slot, self.process)

    # ---- settings --------------------------------------------------------------------------

    def settings(self) -> Mapping[str, str]:
        """All settings of the session."""
        return {**self.server.shown, **self._settings, "session_authorization": self.user}

    def show(self, name: str) -> str:
        """A setting."""
        name = {"time zone": "timezone"}.get(name, name)
        found = self.settings().get(name)
        if found is None:
            raise ServeError("42704", f'unrecognized configuration parameter "{name[:64]}"')
        return found

    def assign(self, name: str, value: str | None) -> None:
        """Change a setting, or give it its default; the client is told where drivers follow it."""
        self._assign(name, value)
        shown = _REPORTED.get(name)
        if shown is not None:
            self.connection.write(messages.parameter_status(shown, self.show(name)))

    def _assign(self, name: str, value: str | None) -> None:
        if name == "client_encoding":
            if value is not None and value.lower() not in _UTF8:
                raise ServeError("22023", "client_encoding is UTF8 here, and no other")
            return
        if name not in _FREE:
            shown = self.settings().get(name)
            if shown is not None and value is not None and value.lower() == shown.lower():
                return  # drivers ask for what they need
            if shown is not None:
                raise ServeError("55P02", f'parameter "{name[:64]}" cannot be changed')
            raise ServeError("42704", f'unrecognized configuration parameter "{name[:64]}"')
        if name == "datestyle" and value is not None:
            order = _ISO_STYLE.fullmatch(value.strip().lower())
            if order is not None:  # how dates are read; they are shown alike in each order
                self._settings[name] = f"ISO, {order[1].upper()}"
        if name in {"timezone", "datestyle", "intervalstyle", "bytea_output"}:
            return  # values are those that landed: in UTC and ISO
        if value is None:
            self._settings.pop(name, None)
            return
        if name == "wal_sender_timeout":
            value = f"{milliseconds(value)}ms"
        if name == START_LSN and value not in {EARLIEST, LATEST}:
            try:
                Lsn.parse(value)
            except ValueError:
                raise ServeError(
                    "22023",
                    f'invalid value for parameter "{START_LSN}": "{value[:64]}"',
                    hint=f"Allowed: {EARLIEST}, {LATEST}, or an LSN like 16/B374D848.",
                ) from None
        self._settings[name] = value[:1000]


_IGNORED: Final = frozenset({b"d", b"c", b"f"})  # what is left of a stream
_EXTENDED: Final[Mapping[bytes, str]] = {
    b"P": "_parse",
    b"B": "_bind",
    b"D": "_describe",
    b"E": "_execute",
    b"C": "_close",
    b"H": "_flush",
}
_NUMBERS: Final[Mapping[int, str]] = {21: ">h", INT4: ">i", INT8: ">q", OID: ">I", LSN: ">Q"}


def _text_of(value: bytes | None, oid: int, form: int) -> str | None:
    """The text of a parameter."""
    if value is None:
        return None
    if form == 0:
        return messages.decode(value)
    if oid in _NUMBERS:
        if len(value) != struct.calcsize(_NUMBERS[oid]):
            raise ServeError("22P03", "incorrect binary data format in a parameter")
        (number,) = struct.unpack(_NUMBERS[oid], value)
        return str(Lsn(number)) if oid == LSN else str(number)
    if oid == BOOL and len(value) == 1:
        return "true" if value[0] else "false"
    if oid in {0, TEXT, 19, 1042, 1043}:
        return messages.decode(value)
    if oid == 1009:
        return _array_text(value)
    raise sql.not_served(f"a binary parameter of type {oid}")


def _array_text(value: bytes) -> str:
    """The text of a binary ``text[]`` with one dimension."""
    body = Body(value)
    dimensions, _, _ = body.int32(), body.int32(), body.int32()
    if dimensions == 0:
        return "{}"
    if dimensions != 1:
        raise ServeError("22P03", "an array of options has one dimension")
    count, _ = body.int32(), body.int32()
    if not 0 <= count <= messages.MAX_COUNT:
        raise ServeError("22P03", "an array of options is too long")
    items = [body.value() for _ in range(count)]
    quote: Callable[[str], str] = lambda text: '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'  # noqa: E731
    texts = ["NULL" if item is None else quote(messages.decode(item)) for item in items]
    return "{" + ",".join(texts) + "}"
