"""Use a slot of a GaussDB or openGauss server as a source of the reader.

Two connections: one for SQL, closed once the server has said what it is, and one that
streams. The catalogue is asked on a third one, when a row's shape is not known.
"""

import contextlib
import dataclasses
import platform
import ssl
from typing import Final

from gaussdecode.errors import (
    GaussDecodeError,
    LostRowError,
    SourceRefusedError,
    TableError,
    WireError,
)
from gaussdecode.ipc.control import Control
from gaussdecode.protocol.gaussdb.messages import notice_fields
from gaussdecode.protocol.gaussdb.notices import is_loss
from gaussdecode.protocol.gaussdb.options import (
    StreamRequest,
    is_batched,
    server_options,
    start_command,
    stream_style,
)
from gaussdecode.protocol.notices import ROWS_MAY_BE_MISSING, Notice
from gaussdecode.settings.rules import SourceKind
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._receive import End
from gaussdecode.source._status import StatusClock
from gaussdecode.source.gaussdb import server as gaussserver
from gaussdecode.source.gaussdb._receive import GaussReceiver
from gaussdecode.source.gaussdb._spill import Spill
from gaussdecode.source.gaussdb.capture import RecordedCatalog
from gaussdecode.source.gaussdb.catalog import GaussCatalog
from gaussdecode.source.gaussdb.connection import connect
from gaussdecode.source.gaussdb.errors import broken
from gaussdecode.source.gaussdb.identity import Nulls, nulls_of
from gaussdecode.source.gaussdb.relations import GaussRelations, TableCatalog
from gaussdecode.source.gaussdb.tables import read_tables, unsent
from gaussdecode.source.gaussdb.translate._translator import Translator
from gaussdecode.source.interface import Log, Record
from gaussdecode.source.relations import relation_record, white_list
from gaussdecode.source.settings import ReaderSettings
from gaussdecode.source.sqlstate import Phase
from gaussdecode.source.start import log_position, refuse_active

_MAX_LOGGED: Final = 100  # other notices in one session; arbitrary
_VALUE_CLASS: Final = "22"  # SQLSTATEs whose texts may repeat a value of a row


class GaussPath:
    """The slow path of a GaussDB stream: shapes of rows, and notices.

    Args:
        receiver: the loop.
        relations: numbers versions.
        say: tells what is worth a line.
        recorded: takes what a capture holds of the catalogue; None for a server's stream.
    """

    def __init__(
        self,
        receiver: GaussReceiver,
        relations: GaussRelations,
        say: Log,
        recorded: RecordedCatalog | None = None,
    ) -> None:
        self._receiver = receiver
        self._relations = relations
        self._say = say
        self._recorded = recorded
        self._logged = 0

    def answer(self, end: End) -> bool:
        """See `Source.answer`."""
        if end is End.RELATION:
            self._define()
        elif end is End.NOTICE:
            self._receiver.reply(self._message_of(self._receiver.frame()))
        elif end is End.TABLE and self._recorded is not None:
            self._recorded.take(self._receiver.frame())
            self._receiver.reply(None)
        else:
            return False
        return True

    def _define(self) -> None:
        """Ask the catalogue in another thread: it may take longer than the server waits for us."""
        shape = self._receiver.translator.describe()
        try:
            definition = self._receiver.in_worker(lambda: self._relations.define(shape))
        except LostRowError as error:
            namespace, name = error.table
            end_lsn = self._receiver.translator.end_lsn
            raise TableError(namespace, name, None, end_lsn, error.reason) from error
        record = relation_record(definition.relation) if definition.is_new else None
        self._receiver.define(definition, record)

    def _message_of(self, body: bytes) -> bytes | None:
        """What goes in-band for a notice; None for one that says nothing of the data."""
        try:
            fields = notice_fields(body)
        except WireError:
            fields = {"M": "a notice that cannot be read"}
        text = fields.get("M", "")
        if is_loss(text):
            self._say("rows_may_be_missing", level="error", text=text)
            return Notice(ROWS_MAY_BE_MISSING, text.encode()).to_bytes()
        self._logged += 1
        if self._logged <= _MAX_LOGGED:
            code = fields.get("C", "")
            shown = "" if code.startswith(_VALUE_CLASS) else text
            self._say("server_notice", severity=fields.get("S", ""), sqlstate=code, text=shown)
        return None


class GaussSource:
    """A slot, checked and ready.

    Args:
        settings: settings of the reader.
        say: tells what is worth a line.
    """

    def __init__(self, settings: ReaderSettings, say: Log) -> None:
        self._settings = settings
        self._say = say
        self._slot = settings.slot
        state, address, decoding = settings.log, settings.address, settings.decoding
        request = StreamRequest(settings.config_name, settings.plugin, decoding)
        with contextlib.ExitStack() as stack, connect(address, is_replication=False) as sql:
            place = gaussserver.stream_address(address, settings.ha_port, sql)
            self._stream = stack.enter_context(connect(place, is_replication=True))
            self._server = gaussserver.read_server(sql, self._stream, self._slot)
            self._coverage = unsent(read_tables(sql, white_list(settings.decoding)))
            stack.pop_all()
        plugins = () if decoding.is_parallel else (settings.plugin,)
        self._start_lsn = gaussserver.check_start(state, self._server, self._slot, plugins)
        problem = gaussserver.landing_problem(self._server)
        if problem is not None:
            raise SourceRefusedError(problem)
        refuse_active(state, self._server)
        self._log_lsn = None if state is None else log_position(state, self._server)
        self._options = server_options(request, self._server.profile)
        self._is_parallel = decoding.is_parallel
        self._translator = translator_of(
            settings,
            stream_style(request),
            self._server.encoding,
            is_batched=is_batched(request),
            takes_ddl=decoding.enable_ddl_decoding,
        )
        self._catalog = GaussCatalog(address)
        nulls = nulls_of(self._server.version, stream_style(request))
        self._relations = relations_of(settings, self._catalog, nulls)

    @property
    def facts(self) -> Record:
        """See `Source`."""
        server = self._server
        assert server.slot is not None
        identity = server.identity(SourceKind.GAUSSDB, self._slot, server.slot.plugin)
        return {
            "identity": dataclasses.asdict(identity),
            "start_lsn": int(self._start_lsn),
            "log_lsn": self._log_lsn,
            "wal_end": int(server.wal_end),
            "timeline": server.timeline,
            "node": server.node,
            "server_version": server.version,
            "encoding": server.encoding,
            "sender_timeout_ms": self.sender_timeout_ms,
            "is_origin_filtered": self._settings.decoding.only_local,
            "hides_truncate": self._is_parallel or not server.profile.sends_truncate,
            "coverage": self._coverage.to_record(),
            "warnings": gaussserver.warnings(server, is_parallel=self._is_parallel),
        }

    @property
    def sender_timeout_ms(self) -> int:
        """See `Source`; the option goes before the server's own."""
        asked = self._settings.decoding.sender_timeout
        return self._server.sender_timeout_ms if asked is None else asked

    def receiver(
        self, control: Control, dispatcher: Dispatcher, clock: StatusClock
    ) -> GaussReceiver:
        """See `Source`."""
        self._receiver = GaussReceiver(
            control,
            dispatcher,
            clock,
            self._translator,
            self._settings.max_message_bytes,
            not self._is_parallel,
            self._settings.decoding.auto_advance,
        )
        start = self._settings.decoding.start_at
        if start is not None:
            self._receiver.start_from(*start)
        self._slow_path = GaussPath(self._receiver, self._relations, self._say)
        return self._receiver

    def start(self) -> None:
        """Send START_REPLICATION, and hand the socket to the loop.

        Nobody else touches it until the loop is back.
        """
        self._stream.hear_warnings()
        self._stream.start_stream(start_command(self._slot, self._start_lsn, self._options))
        stream = self._stream
        self._receiver.attach_socket(stream.socket, stream.pending, stream.parameters)
        if isinstance(stream.socket, ssl.SSLSocket) and not self._receiver.reads_openssl:
            self._say("tls_through_python", python=platform.python_version())

    def answer(self, end: End) -> bool:
        """See `Source`."""
        return self._slow_path.answer(end)

    def error(self) -> GaussDecodeError:
        """A server's stream never ends well by itself."""
        receiver = self._receiver
        if receiver.server_error is None and receiver.failure is not None:
            return broken(Phase.STREAM, receiver.failure)
        return self._stream.stream_error(receiver.server_error)

    def end(self) -> None:
        """Send CopyDone and close."""
        self._stream.end_stream()
        self._stream.close()
        self._catalog.close()


def translator_of(
    settings: ReaderSettings, style: str, encoding: str, *, is_batched: bool, takes_ddl: bool
) -> Translator:
    """Make the translator of a stream; half of desc-memory-limit is its own.

    The other half is for the relations: the one keeps descriptions as bytes of the wire, the
    other in words.
    """
    memory_limit = settings.decoding.desc_memory_bytes // 2
    return Translator(style.encode(), is_batched, encoding, memory_limit, takes_ddl)


def relations_of(settings: ReaderSettings, catalog: TableCatalog, nulls: Nulls) -> GaussRelations:
    """Make the registry of a stream's relations."""
    spill = Spill(settings.decoding.desc_memory_bytes // 2, settings.desc_directory)
    return GaussRelations(white_list(settings.decoding), catalog, spill, settings.left_out, nulls)
