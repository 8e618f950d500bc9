"""Use a slot of a PostgreSQL server as a source of the reader."""

import dataclasses
from typing import Final

from gaussdecode.errors import GaussDecodeError, OpenTransactionError, SourceRefusedError
from gaussdecode.ipc.control import Control
from gaussdecode.settings.rules import SourceKind
from gaussdecode.source import coverage
from gaussdecode.source._dispatch import Dispatcher
from gaussdecode.source._receive import End
from gaussdecode.source._status import StatusClock
from gaussdecode.source.interface import Log, Record
from gaussdecode.source.postgresql import slot as slots
from gaussdecode.source.postgresql._known import KnownMessages
from gaussdecode.source.postgresql._receive import PostgresReceiver
from gaussdecode.source.postgresql.connection import connect
from gaussdecode.source.postgresql.libpq import address_of
from gaussdecode.source.postgresql.relations import Relations
from gaussdecode.source.relations import white_list
from gaussdecode.source.settings import ReaderSettings
from gaussdecode.source.slot import PLUGIN
from gaussdecode.source.start import (
    check_start,
    log_position,
    primary_problem,
    refuse_active,
    warnings,
)


def known_messages(settings: ReaderSettings) -> KnownMessages:
    """Make a registry of descriptions, bounded as the reader's settings say."""
    return KnownMessages(settings.decoding.desc_memory_bytes, settings.desc_directory)


_BY_RECORDS: Final = (
    "the OpenSSL of this libpq cannot be asked to read ahead: the reader takes four times the CPU "
    "time to receive, and nothing else differs; psycopg[binary] has one that can"
)


_OF_CONNECTIONS: Final = ("57", "08")
"""Classes of SQLSTATEs with which a server ends connections, whatever is sent on them."""


class SlowPath:
    """The slow path of a pgoutput stream: new relations and types.

    Args:
        receiver: the loop.
        relations: numbers them.
    """

    def __init__(self, receiver: PostgresReceiver, relations: Relations) -> None:
        self._receiver = receiver
        self._relations = relations

    def answer(self, end: End) -> bool:
        """See `Source.answer`."""
        receiver, relations = self._receiver, self._relations
        has_xid = receiver.has_xid
        if end is End.RELATION:
            relation = relations.define(receiver.frame(), is_streamed=has_xid)
            record = relations.record(relation, is_streamed=receiver.is_in_block)
            receiver.define(relation.oid, record)
        elif end is End.TYPE:
            receiver.define(relations.note_type(receiver.frame(), is_streamed=has_xid), None)
        else:
            return False
        return True


class PostgresSource:
    """A slot of a PostgreSQL server, checked and ready.

    Args:
        settings: settings of the reader.
        say: tells what is worth a line.
    """

    def __init__(self, settings: ReaderSettings, say: Log) -> None:
        self._slot = settings.slot
        self._say = say
        state = settings.log
        publications = settings.publications
        self._connection = connect(settings.address)
        self._server = slots.read_server(self._connection, self._slot, publications, state)
        wants_standby = settings.decoding.standby_connection
        problem = primary_problem(self._server, state, wants_standby=wants_standby)
        if problem is not None:
            raise SourceRefusedError(problem)
        self._start_lsn = check_start(state, self._server, self._slot, two_phase=settings.two_phase)
        refuse_active(state, self._server)
        self._log_lsn = None if state is None else log_position(state, self._server)
        self._relations = Relations(
            white_list(settings.decoding), self._connection.encoding, settings.unread
        )
        self._coverage = self._compare_tables(settings)
        self._known = known_messages(settings)
        self._options = slots.stream_options(
            self._server.version,
            publications,
            messages=settings.messages,
            only_local=settings.decoding.only_local,
            streaming=settings.streaming,
            two_phase=settings.two_phase,
        )

    def _compare_tables(self, settings: ReaderSettings) -> coverage.Coverage:
        items = settings.decoding.white_tables
        if not items:
            return coverage.Coverage()
        found = slots.published_tables(self._connection, settings.publications)
        return coverage.compare(items, ((table.schema, table.name) for table in found))

    @property
    def facts(self) -> Record:
        """See `Source`."""
        server = self._server
        identity = server.identity(SourceKind.POSTGRESQL, self._slot, PLUGIN)
        return {
            "identity": dataclasses.asdict(identity),
            "start_lsn": int(self._start_lsn),
            "log_lsn": self._log_lsn,
            "wal_end": int(server.wal_end),
            "timeline": server.timeline,
            "instance": server.instance,
            "is_standby": server.is_standby,
            "server_version": server.version,
            "encoding": server.encoding,
            "sender_timeout_ms": server.sender_timeout_ms,
            "is_origin_filtered": self._options.get("origin") == "none",
            "hides_truncate": False,
            "coverage": self._coverage.to_record(),
            "warnings": warnings(server.version),
        }

    @property
    def sender_timeout_ms(self) -> int:
        """See `Source`."""
        return self._server.sender_timeout_ms

    def receiver(
        self, control: Control, dispatcher: Dispatcher, clock: StatusClock
    ) -> PostgresReceiver:
        """See `Source`."""
        self._receiver = PostgresReceiver(control, dispatcher, clock, self._known)
        self._slow_path = SlowPath(self._receiver, self._relations)
        return self._receiver

    def start(self) -> None:
        """Send START_REPLICATION, and hand the connection to the loop.

        Nobody else touches it until the loop is back.
        """
        slots.start_stream(self._connection, self._slot, self._start_lsn, self._options)
        self._connection.on_gap = self._receiver.cut_off
        pgconn = self._connection.pgconn
        ahead = self._connection.read_ahead()
        if pgconn.ssl_in_use and ahead is None:
            libpq = self._connection.libpq
            self._say(
                "tls_by_records",
                psycopg=libpq.implementation,
                libpq=libpq.version,
                advice=_BY_RECORDS,
            )
        self._receiver.attach_connection(
            pgconn,
            address_of(pgconn),
            self._connection.libpq.addresses,
            pgconn.socket,
            bool(pgconn.ssl_in_use),
            *(() if ahead is None else (ahead.ssl, ahead.has_pending)),
        )

    def answer(self, end: End) -> bool:
        """See `Source`."""
        return self._slow_path.answer(end)

    def error(self) -> GaussDecodeError:
        """A server's stream never ends well by itself."""
        error = self._connection.stream_error()
        code = error.sqlstate or ""
        if self._receiver.has_xid and code and not code.startswith(_OF_CONNECTIONS):
            return OpenTransactionError(error.reason, code)
        return error

    def end(self) -> None:
        """Send CopyDone and close."""
        self._connection.end_stream()
        self._connection.close()
