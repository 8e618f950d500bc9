"""One connection to the simulated server: startup, password, commands.

On a walsender connection every error is FATAL and ends it, as there is no recovery around
the real command loop. On an ordinary one errors end the statement.
"""

import contextlib
import re
import socket
import ssl
import struct
import threading
import time
from typing import TYPE_CHECKING, Final

from kit import gausscommand, gausspassword, gausssnapshot
from kit.gaussactivity import Backend
from kit.gausscommand import Command, CommandError
from kit.gaussmessage import Result, lsn_text, message, report
from kit.gausspassword import Question
from kit.gausssender import Sender

if TYPE_CHECKING:
    from kit.gaussserver import GaussServer

SSL_REQUEST, CANCEL_REQUEST, GSS_REQUEST = 80877103, 80877102, 80877104
_TEXT, _INT4, _INT8, _BOOL, _XID, _OID = 25, 23, 20, 16, 28, 26
_THAW_SECONDS: Final = 0.02
_KEY: Final = 815
_MAX_MESSAGE: Final = 1 << 24
_STATEMENT: Final = re.compile(r"""(?:[^;"']|"[^"]*"|'(?:[^']|'')*')+""")
_SET: Final = re.compile(
    r"SET\s+(?:SESSION\s+|LOCAL\s+)?(\w+)\s*(?:=|\s+TO\s+)\s*(.+)", re.IGNORECASE | re.DOTALL
)
_SHOW: Final = re.compile(r"SHOW\s+(\w+)", re.IGNORECASE)
_TIME_ZONE: Final = re.compile(r"SET\s+TIME\s+ZONE\s+(.+)", re.IGNORECASE)
_TRANSACTION: Final = re.compile(
    r"(BEGIN|START TRANSACTION|COMMIT|ROLLBACK|END|DISCARD)\b", re.IGNORECASE
)
_CALL: Final = re.compile(
    r"SELECT\s+(.*?)(?:FROM\s+)?(?:pg_catalog\.)?"
    r"(pg_create_logical_replication_slot|pg_drop_replication_slot|pg_replication_slot_advance)"
    r"\s*\(([^()]*)\)(?:\s+AS\s+\w+)?\s*",
    re.IGNORECASE | re.DOTALL,
)
_ARGUMENT: Final = re.compile(r"'((?:[^']|'')*)'|(\d+)")
_REPORTED: Final = (
    "server_version", "server_encoding", "client_encoding", "DateStyle", "IntervalStyle",
    "TimeZone", "integer_datetimes", "is_superuser", "session_authorization",
    "standard_conforming_strings", "application_name",
)  # fmt: skip


class Gone(Exception):  # noqa: N818 - nothing is wrong
    """The connection ends here."""


class Session:
    """One accepted connection, run by a thread of its own.

    Attributes:
        settings: run-time settings by lower-case name.
        is_walsender: it came with ``replication=``.
        is_streaming: START_REPLICATION was sent.
        user: who logged in.
        backend: as other sessions see it, once it is greeted.
    """

    def __init__(
        self, server: "GaussServer", raw: socket.socket, *, is_ha: bool, tls: ssl.SSLContext | None
    ) -> None:
        self.server = server
        self.socket: socket.socket = raw
        self.settings: dict[str, str] = {}
        self.is_walsender = False
        self.is_streaming = False
        self.user = ""
        self.database = ""
        self._is_ha = is_ha
        self._tls = tls
        self._minor = 0
        self._lock = threading.Lock()
        self._closed = False
        self.transactions = gausssnapshot.Transactions(self)
        self.backend: Backend | None = None

    # --- life --------------------------------------------------------------------------

    def run(self) -> None:
        """Serve the connection until it ends."""
        try:
            with contextlib.suppress(Gone, OSError, EOFError, ValueError):
                self._startup()
                self._commands()
        finally:
            self.transactions.end()
            if self.backend is not None:
                self.server.store.activity.leave(self.backend)

    def close(self) -> None:
        """Close the connection in order."""
        with self._lock:
            if not self._closed:
                self._closed = True
                with contextlib.suppress(OSError):
                    self.socket.close()

    def terminate(self) -> None:
        """End an idle session as an administrator does."""
        text = "terminating connection due to administrator command"
        with self._lock, contextlib.suppress(OSError, ValueError):
            if not self._closed:
                self.socket.sendall(report(b"E", "FATAL", text, "57P01"))
                self.socket.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Let the peer see a reset, now; the thread notices by itself."""
        with self._lock, contextlib.suppress(OSError):
            if not self._closed:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.socket.shutdown(socket.SHUT_RDWR)

    def _receive(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            data = self.socket.recv(count - len(parts))
            if not data:
                raise EOFError
            parts += data
        self._thaw()
        return bytes(parts)

    def _thaw(self) -> None:
        """Do nothing while the server is frozen."""
        while self.server.behaviour.is_frozen:
            time.sleep(_THAW_SECONDS)

    def send(self, data: bytes) -> None:
        """Send everything."""
        self._thaw()
        self.socket.sendall(data)

    def fatal(self, text: str, sqlstate: str, hint: str = "") -> Gone:
        """Send a FATAL error; the caller raises what comes back."""
        self.send(report(b"E", "FATAL", text, sqlstate, hint))
        return Gone()

    # --- startup -----------------------------------------------------------------------

    def _startup(self) -> None:
        (size,) = struct.unpack(">I", self._receive(4))
        if not 8 <= size <= 10_000:
            raise Gone
        body = self._receive(size - 4)
        (code,) = struct.unpack_from(">I", body)
        if code == SSL_REQUEST:
            self._use_tls()
            self._startup()
            return
        if code == CANCEL_REQUEST:
            self._cancel(*struct.unpack_from(">II", body, 4))
            raise Gone
        major, self._minor = code >> 16, code & 0xFFFF
        if major != 3 or self._minor not in self.server.behaviour.protocols:
            text = (
                f"unsupported frontend protocol {major}.{self._minor}: server supports 1.0 to 3.0"
            )
            if major == 2:  # answered in the way of that protocol
                self.send(b"E" + f"FATAL:  {text}\n".encode() + b"\0")
                raise Gone
            raise self.fatal(text, "0A000")
        fields = body[4:].split(b"\0")
        given = {
            fields[i].decode(): fields[i + 1].decode()
            for i in range(0, len(fields) - 1, 2)
            if fields[i]
        }
        self._admit(given)
        self._greet()

    def _cancel(self, number: int, key: int) -> None:
        """Have another session give up its statement, where the key fits."""
        for backend in list(self.server.store.activity.backends.values()):
            if backend.index == number and key == number ^ _KEY:
                backend.is_cancelled = True

    def _use_tls(self) -> None:
        if self._tls is None:
            self.socket.sendall(b"N")
            return
        self.socket.sendall(b"S")
        self.socket = self._tls.wrap_socket(self.socket, server_side=True)
        self._tls = None

    def _admit(self, given: dict[str, str]) -> None:
        """Look at the startup packet as postmaster and pg_hba do, then ask for the password."""
        how = self.server.behaviour
        kind = given.pop("replication", "")
        self.is_walsender = kind not in ("", "false", "off", "no", "0")
        self.user = given.pop("user", "")
        self.database = given.pop("database", self.user)
        if not self.user:
            raise self.fatal("no PostgreSQL user name specified in startup packet", "28000")
        if self.is_walsender and how.thread_pool and not self._is_ha:
            which = "logical replication" if kind == "database" else "replication"
            raise self.fatal(f"{which} should connect HA port in thread_pool", "0A000")
        method = how.replication_hba if self.is_walsender else how.hba
        if method == "reject":
            target = (
                "replication connection" if self.is_walsender else f'database "{self.database}"'
            )
            raise self.fatal(
                f'no pg_hba.conf entry for {target} from host "127.0.0.1", user "{self.user}"',
                "28000",
            )
        self._authenticate(method)
        if self.database != self.server.database and (not self.is_walsender or kind == "database"):
            raise self.fatal(f'database "{self.database}" does not exist', "3D000")
        if self.is_walsender and not self.server.users[self.user].can_replicate:
            raise self.fatal("must be superuser or replication role to start walsender", "42501")
        self._set_defaults(given, kind)

    def _authenticate(self, method: str) -> None:
        user = self.server.users.get(self.user)
        known = user or gausspassword.User(self.user, "nobody knows")
        question = Question(method, known, self._minor, gausspassword.salt_of(known))
        if question.code != gausspassword.OK:
            self.send(message(b"R", question.message))
            letter, answer = self._read_message()
            if letter == b"X":
                raise Gone
            if user is None or letter != b"p" or not question.accepts(answer):
                self.server.wrong_passwords += 1
                raise self.fatal("Invalid username/password,login denied.", "28P01")
        elif user is None:
            raise self.fatal(f'role "{self.user}" does not exist', "28000")

    def _set_defaults(self, given: dict[str, str], kind: str) -> None:
        how = self.server.behaviour
        self.kind = kind
        zone = how.zone_minutes
        base = {
            "server_version": "9.2.4", "server_encoding": how.encoding,
            "client_encoding": how.encoding, "datestyle": "ISO, MDY", "intervalstyle": "postgres",
            "timezone": "UTC" if not zone else f"{zone // 60:+03}", "integer_datetimes": "on",
            "is_superuser": "off", "session_authorization": self.user, "application_name": "",
            "standard_conforming_strings": "on", "extra_float_digits": "0",
            "bytea_output": "hex", "logical_sender_timeout": str(how.sender_timeout_ms),
            "sql_compatibility": how.compatibility, "wal_level": "logical",
            "enable_thread_pool": "on" if how.thread_pool else "off",
            "behavior_compat_options": "display_leading_zero" if how.leading_zero else "",
            "statement_timeout": "0", "lock_timeout": "0", "client_min_messages": "notice",
            "search_path": '"$user",public', "xmloption": "content",
            "pgxc_node_name": self.server.node_name,
        }  # fmt: skip
        self.settings = {**base, **how.settings}
        options = given.pop("options", "")
        for pair in re.findall(r"-c\s*(\w+=(?:\\ |\S)*)", options):
            name, _, value = pair.partition("=")
            self.settings[name.lower()] = value.replace("\\ ", " ")
        for name, value in given.items():
            self.settings[name.lower()] = value
        if self.is_walsender:
            self.settings["client_min_messages"] = "error"  # as every logical sender does itself

    @property
    def hears_warnings(self) -> bool:
        """Whether a warning is sent to the client."""
        return self.settings["client_min_messages"] not in {"error", "fatal", "panic"}

    def _greet(self) -> None:
        out = message(b"R", struct.pack(">i", gausspassword.OK))
        for name in _REPORTED:
            value = self.settings[name.lower()]
            out += message(b"S", name.encode() + b"\0" + value.encode() + b"\0")
        application = self.settings["application_name"]
        self.backend = self.server.store.activity.connect(self.user, application)
        index = self.backend.index
        out += message(b"K", struct.pack(">II", index, index ^ _KEY)) + message(b"Z", b"I")
        self.send(out)

    def _read_message(self) -> tuple[bytes, bytes]:
        head = self._receive(5)
        (size,) = struct.unpack(">I", head[1:])
        if not 4 <= size <= _MAX_MESSAGE:
            raise self.fatal("invalid message length", "08P01")
        return head[:1], self._receive(size - 4)

    # --- commands ----------------------------------------------------------------------

    def _commands(self) -> None:
        while True:
            if self.is_walsender and self.server.behaviour.sender_timeout_ms:
                # An idle walsender goes without a word.
                self.socket.settimeout(self.server.behaviour.sender_timeout_ms / 1000)
            try:
                letter, body = self._read_message()
            except TimeoutError:
                raise Gone from None
            self.socket.settimeout(None)
            if letter == b"X":
                raise Gone
            if letter == b"Q":
                self._query(body.rstrip(b"\0").decode(self._codec))
            elif not self.is_walsender:
                raise self.fatal("the simulator takes simple queries only", "0A000")
            elif letter != b"P":  # Parse is swallowed without a word
                raise self.fatal(
                    f'invalid standby handshake message type "{letter.decode("latin-1")}"', "08P01"
                )

    @property
    def _codec(self) -> str:
        name = self.settings.get("client_encoding", "UTF8").strip("'\"").upper().replace("-", "")
        return {"UTF8": "utf-8", "GBK": "gbk", "GB18030": "gb18030", "LATIN1": "latin-1"}.get(
            name, self.server.codec
        )

    def _query(self, text: str) -> None:
        assert self.backend is not None
        self.backend.run(text, self.server.store.activity.now_us())
        try:
            self._answer(text)
        except CommandError as error:
            if self.is_walsender:
                raise self.fatal(error.message, error.sqlstate, error.hint) from None
            self.transactions.is_failed = self.transactions.is_open
            self.send(report(b"E", "ERROR", error.message, error.sqlstate, error.hint))
        self.backend.rest(is_in_transaction=self.transactions.is_open)
        self.send(message(b"Z", self.transactions.status))

    def _answer(self, text: str) -> None:
        command = gausscommand.parse(text) if self.is_walsender else None
        if command is not None:
            self._replication(command)
            return
        if self.is_walsender and self.kind != "database":
            raise CommandError("not connected to database", "55000")
        statements = [part for part in _STATEMENT.findall(text) if part.strip()]
        if not statements:
            self.send(message(b"I"))
        for statement in statements:
            result = self.execute(statement.strip())
            if isinstance(result, bytes):
                self.send(result)
            else:
                self.send_result(result)

    def send_result(self, result: Result, tag: str | None = None) -> None:
        """Send rows and their CommandComplete."""
        out = []
        if result.columns:
            fields = b"".join(
                name.encode() + b"\0" + struct.pack(">IHIhih", 0, 0, oid, -1, -1, 0)
                for name, oid in result.columns
            )
            out.append(message(b"T", struct.pack(">H", len(result.columns)) + fields))
            out += [self._data_row(row) for row in result.rows]
        out.append(message(b"C", (tag or result.tag).encode() + b"\0"))
        self.send(b"".join(out))

    def _data_row(self, row: tuple[str | None, ...]) -> bytes:
        parts = [struct.pack(">H", len(row))]
        for value in row:
            if value is None:
                parts.append(struct.pack(">i", -1))
            else:
                data = value.encode(self._codec, "replace")
                parts.append(struct.pack(">i", len(data)) + data)
        return message(b"D", b"".join(parts))

    # --- replication -------------------------------------------------------------------

    def _replication(self, command: Command) -> None:
        server = self.server
        if command.name == "IDENTIFY_SYSTEM":
            database = self.database if self.kind == "database" else None
            row = (str(server.system_identifier), "1", lsn_text(server.wal_end), database)
            columns = [
                ("systemid", _TEXT),
                ("timeline", _INT4),
                ("xlogpos", _TEXT),
                ("dbname", _TEXT),
            ]
            self.send_result(Result(columns, [row], "SELECT"))
        elif command.name == "IDENTIFY_VERSION":
            columns = [
                ("version", _TEXT),
                ("catalogversion", _TEXT),
                ("pg_protocol_version", _TEXT),
            ]
            self.send_result(Result(columns, [("92", "201611171", "V1.0")], "SELECT"))
        elif command.name == "CREATE_REPLICATION_SLOT":
            self._create(command)
        elif command.name == "DROP_REPLICATION_SLOT":
            server.drop_slot(command.slot)
            self.send(message(b"C", b"DROP_REPLICATION_SLOT\0") + message(b"C", b"SELECT\0"))
        elif command.name == "ADVANCE_REPLICATION":
            slot = server.advance_slot(command.slot, *command.lsns)
            columns = [("slot_name", _TEXT), ("confirmed_flush", _TEXT)]
            self.send_result(Result(columns, [(slot.name, lsn_text(slot.position))], "SELECT"))
        elif command.name == "START_REPLICATION":
            self._stream(command)
        else:
            raise CommandError(f"the simulator does not do {command.name}", "0A000")

    def _create(self, command: Command) -> None:
        if command.plugin is None:
            raise CommandError("the simulator makes logical slots only", "0A000")
        if self.kind != "database":
            raise CommandError("logical decoding requires a database connection", "55000")
        self._wait_for_transactions()
        slot = self.server.create_slot(command.slot, command.plugin)
        columns = ["slot_name", "consistent_point", "snapshot_name", "output_plugin"]
        row = [slot.name, lsn_text(slot.position), None, slot.plugin]
        if "USE_SNAPSHOT" in command.flags:
            columns.append("snapshot_csn")
            row.append("4711")
        self.send_result(Result([(name, _TEXT) for name in columns], [tuple(row)], "SELECT"))

    def _stream(self, command: Command) -> None:
        """Stream until one side has enough; this connection does nothing else afterwards."""
        if self.kind != "database":
            raise CommandError("logical decoding requires a database connection", "55000")
        sender = Sender(self, command)
        self.is_streaming = True
        try:
            sender.run()
        except CommandError as error:
            # In the copy stream, or before it; FATAL in either case.
            raise self.fatal(error.message, error.sqlstate, error.hint) from None
        finally:
            sender.release()
        raise Gone

    # --- SQL ---------------------------------------------------------------------------

    def execute(self, text: str) -> Result | bytes:
        """Run one SQL statement; gives rows, or the messages of a COPY.

        Raises:
            CommandError: it fails, or the simulator does not know it.
        """
        self.server.check_right(self.user, text)
        done = self.transactions.execute(text) or gausssnapshot.execute(self, text)
        if done is not None:
            return done
        match = _TIME_ZONE.fullmatch(text)
        if match:
            return self._set("timezone", match[1])
        match = _SET.fullmatch(text)
        if match:
            return self._set(match[1].lower(), match[2])
        match = _SHOW.fullmatch(text)
        if match:
            value = self.settings.get(match[1].lower())
            if value is None:
                raise self._unknown(text)
            if match[1].lower() == "logical_sender_timeout":
                value += "ms"
            return Result([(match[1].lower(), _TEXT)], [(value,)], "SHOW")
        match = _TRANSACTION.match(text)
        if match:
            return Result([], [], match[1].upper())
        match = _CALL.fullmatch(text)
        if match:
            return self._call(match[2].lower(), [a or b for a, b in _ARGUMENT.findall(match[3])])
        if self.server.behaviour.is_standby and "pg_current_xlog_insert_location" in text.lower():
            raise CommandError("recovery is in progress", "55000")
        if self.server.catalogue is None:
            raise self._unknown(text)
        try:
            csn = self.transactions.csn
            return Result(
                *self.server.catalogue.query(self.server, self.settings, text, csn, self.backend)
            )
        except LookupError as error:
            self.server.unknown_queries.append(text)
            raise CommandError(str(error.args[0]), "42P01") from None

    def _unknown(self, text: str) -> CommandError:
        self.server.unknown_queries.append(text)
        return CommandError(f"the simulator does not know this query: {text}", "0A000")

    def _set(self, name: str, value: str) -> Result:
        self.settings[name] = value.strip().strip("'\"")
        shown = next((n for n in _REPORTED if n.lower() == name), None)
        if shown:
            text = shown.encode() + b"\0" + self.settings[name].encode() + b"\0"
            self.send(message(b"S", text))
        return Result([], [], "SET")

    def _wait_for_transactions(self) -> None:
        """Wait until those that are open now have ended, as whoever makes a slot does."""
        assert self.backend is not None
        activity = self.server.store.activity
        waited = {one.xid for one in activity.running() if one.xid}
        while waited & {one.xid for one in activity.running()}:
            if self.backend.is_cancelled:
                raise CommandError("canceling statement due to user request", "57014")
            time.sleep(_THAW_SECONDS)

    def _call(self, name: str, values: list[str]) -> Result:
        server = self.server
        if name == "pg_drop_replication_slot":
            server.drop_slot(values[0])
            return Result([(name, 2278)], [("",)], "SELECT 1")
        if name == "pg_create_logical_replication_slot":
            gausscommand.check_slot_name(values[0])
            if values[2:] not in ([], ["0"], ["1"]):
                raise CommandError("output_order must be 0 or 1", "22023")
            self._wait_for_transactions()
            makes = server.create_slot if values[2:] != ["1"] else server.create_csn_slot
            if len(values) > 2 and not server.profile.is_commercial:
                makes = server.create_csn_slot  # which refuses it
            slot = makes(values[0], values[1])
            columns = [("slotname", _TEXT), ("xlog_position", _TEXT)]
            return Result(columns, [(slot.name, lsn_text(slot.position))], "SELECT 1")
        slot = server.slot(values[0])
        high, low = values[1].split("/")
        target = int(high, 16) << 32 | int(low, 16)
        if target < slot.position:
            raise CommandError(
                f"cannot move slot to {values[1]}, minimum is {lsn_text(slot.position)}",
                "22023",
            )
        slot = server.advance_slot(values[0], 0, target)
        columns = [("slot_name", _TEXT), ("end_lsn", _TEXT)]
        return Result(columns, [(slot.name, lsn_text(slot.position))], "SELECT 1")
