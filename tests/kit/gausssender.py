"""The walsender of the simulated server: what happens inside CopyBoth.

Parallel mode checks options and slot before CopyBothResponse, serial mode after it. What
may be dropped is judged by the start of the commit record against the start position and
the slot's confirmed position when the stream begins. Feedback moves the slot as it says,
into the future too; what it should never have said goes to ``GaussServer.violations``.
"""

import bisect
import dataclasses
import select
import ssl
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kit import gausscommand, gausswire
from kit.gausscommand import Command, CommandError, StreamOptions
from kit.gausscsn import CsnQueue
from kit.gaussdecoder import Decoder
from kit.gaussmessage import report, zone_offset
from kit.gaussstore import Committed
from kit.gausswire import ParallelStream, SerialStream, SqlStream, Wanted

if TYPE_CHECKING:
    from kit.gausssession import Session

_IDLE_SECONDS: Final = 0.01
_KNOWN_SUBTYPES: Final = b"hsAaSRbwC"
_PLUGIN_STYLES: Final = {
    "parallel_binary_decoding": "b", "parallel_json_decoding": "j", "parallel_text_decoding": "t",
}  # fmt: skip
_PIECE: Final = 1 << 18
_SHUTDOWN: Final = "terminating connection due to administrator command"


class Sender:
    """One START_REPLICATION.

    Attributes:
        sent_lsn: end of the newest transaction that went out whole.
    """

    def __init__(self, session: "Session", command: Command) -> None:
        self._session = session
        self._server = session.server
        self._command = command
        self._options = StreamOptions()
        self._owns_slot = False
        self._incoming = bytearray()
        self._out = memoryview(b"")
        self._bodies: Iterator[bytes] = iter(())
        self._stream: ParallelStream | SerialStream | None = None
        self._next = 0
        self._by_csn: CsnQueue | None = None
        self._last_sent = self._last_heard = self._server.clock()
        self._asked = False
        self._is_first_keepalive = True
        self._reloads = len(self._server.reloads)
        self._load: Iterator[memoryview] | None = None
        self._told_lsn = 0  # serial: all before it was sent, and a client may confirm it
        self._out_lsn = 0  # all before it left the buffers too
        self.sent_lsn = 0

    # --- start -------------------------------------------------------------------------

    def run(self) -> None:
        """Stream until the client has enough.

        Raises:
            CommandError: options or slot are refused.
        """
        is_parallel = gausscommand.is_parallel(self._command.options)
        is_late = self._server.behaviour.late_slot_errors
        if is_parallel:
            self._parse_options()
            if not is_late:
                self._take_slot()
            self._session.send(gausswire.COPY_BOTH)
            if is_late:
                self._take_slot()
        else:
            self._session.send(gausswire.COPY_BOTH)
            self._parse_options()
            self._take_slot()
        if self._options.standby_connection and not self._server.behaviour.is_standby:
            raise CommandError("walsender closed because of role is primary.", "0A000")
        self._begin()
        self._session.socket.setblocking(False)
        self._loop()

    def _parse_options(self) -> None:
        slot = self._server.slots.get(self._command.slot)
        plugin = slot.plugin if slot else ""
        self._options = gausscommand.parse_options(
            self._command.options, self._server.profile, plugin
        )

    def _take_slot(self) -> None:
        server, name = self._server, self._command.slot
        with server.lock:
            if name not in server.slots and self._options.is_parallel:
                raise CommandError(f"Invalid logical replication slot {name}.", "42704")
            slot = server.slot(name)
            if slot.is_physical:
                raise CommandError(
                    "cannot use physical replication slot for logical decoding", "55000"
                )
            if slot.is_active:
                raise CommandError(f'replication slot "{name}" is already active', "55006")
            if slot.database != self._session.database:
                raise CommandError(
                    f'replication slot "{name}" was not created in this database', "55000"
                )
            if bool(slot.confirmed_csn) != bool(self._options.output_order):
                raise CommandError("output-order does not fit the replication slot", "22023")
            slot.is_active = True
            slot.decoders = self._options.parallel_decode_num
            self._slot = slot
            self._owns_slot = True

    def release(self) -> None:
        """Give the slot back."""
        if self._owns_slot:
            with self._server.lock:
                self._slot.is_active = False
            self._owns_slot = False

    def _begin(self) -> None:
        options, server = self._options, self._server
        zone = zone_offset(self._session.settings["timezone"])
        sends_ddl = options.enable_ddl_decoding
        wanted = Wanted(
            xids=options.include_xids,
            timestamp=bool(options.include_timestamp),
            originid=options.include_originid,
            user=options.include_user,
            skip_empty=options.skip_empty_xacts,
            time_zone=zone,
            ddl=("JDDL" if options.enable_ddl_json_format else "TDDL") if sends_ddl else None,
        )
        profile = server.profile
        letter = ""
        if options.is_parallel:
            letter = options.decode_style or _PLUGIN_STYLES.get(self._slot.plugin, "b")
            self._stream = ParallelStream(
                letter, options.sending_batch, wanted, profile, server.now_us,
                is_by_csn=bool(options.output_order),
            )  # fmt: skip
        elif self._slot.plugin == "sql_decoding":
            self._stream = SqlStream(wanted, profile, server.now_us)
        else:
            self._stream = SerialStream(wanted, profile, server.now_us)
        is_rounding = not options.is_parallel and self._slot.plugin == "sql_decoding"
        self._decoder = Decoder(
            dataclasses.replace(
                server.printer(is_utc=options.timezone_is_utc), rounds_floats=is_rounding
            ),
            options.white_table_list,
            is_parallel=options.is_parallel,
            skips_generated=options.skip_generated_columns,
            sends_ddl=sends_ddl,
        )
        self._timeout = (
            server.behaviour.sender_timeout_ms
            if options.sender_timeout_ms is None
            else options.sender_timeout_ms
        ) / 1000
        start = max(self._command.lsns[0], self._slot.confirmed_lsn)
        self._start = start
        with server.store.changed:
            self._next = bisect.bisect_left(
                server.store.committed, start, key=lambda one: one.commit_lsn
            )
        if options.output_order:
            after = max(self._slot.confirmed_csn, options.start_position[0] - 1)
            self._by_csn = CsnQueue(server.store, after)
        self._last_heard = server.clock()
        if server.load is not None:
            if not (options.is_parallel and letter == "b" and options.sending_batch):
                raise CommandError("the load is of style b with sending-batch 1", "22023")
            self._load = server.load.buffers()
        self._keepalive()

    # --- the loop ----------------------------------------------------------------------

    def _loop(self) -> None:
        while True:
            if self._server.behaviour.is_frozen:
                select.select((), (), (), _IDLE_SECONDS)
                self._last_heard = self._server.clock()
                continue
            if self._read():
                return
            self._report_settings()
            if self._server.is_stopping and not self._out:
                self._session.socket.setblocking(True)
                if not self._options.is_parallel:
                    self._session.send(report(b"E", "FATAL", _SHUTDOWN, "57P01"))
                return
            if self._timed_out():
                return
            if not self._out and not self._server.behaviour.is_silent:
                self._refill()
            self._write_or_wait()

    def _report_settings(self) -> None:
        """Report settings after a reload, between two messages."""
        while self._reloads < len(self._server.reloads) and not self._out:
            for name, value in self._server.reloads[self._reloads].items():
                body = name.encode() + b"\0" + value.encode() + b"\0"
                self._put(b"S" + struct.pack(">I", len(body) + 4) + body)
            self._reloads += 1

    def _write_or_wait(self) -> None:
        raw = self._session.socket
        if not self._out or self._server.behaviour.is_silent:
            if not (isinstance(raw, ssl.SSLSocket) and raw.pending()):
                select.select((raw,), (), (), _IDLE_SECONDS)
            return
        piece = self._out[:_PIECE]
        count, is_cut = self._server.allowed(len(piece))
        if is_cut:
            raw.setblocking(True)
            raw.sendall(piece[:count])
            self._session.reset()
            raise OSError("cut on purpose")
        try:
            done = raw.send(piece[:count])
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            select.select((raw,), (raw,), (), _IDLE_SECONDS)
            return
        self._out = self._out[done:]
        self._server.sent += done
        self._last_sent = self._server.clock()

    def _put(self, data: bytes) -> None:
        self._out = memoryview(bytes(self._out) + data if self._out else data)

    def _refill(self) -> None:
        """Make the next message, or nothing when there is none."""
        if self._load is not None:
            buffer = next(self._load, None)
            if buffer is not None:
                self._out = buffer
                return
        body = next(self._bodies, None)
        while body is None and not self._server.behaviour.is_held:
            transaction = self._take()
            if transaction is None:
                break
            self._bodies = self._transaction(transaction)
            body = next(self._bodies, None)
        if body is not None:
            self._put(body * self._copies())
            return
        if self._server.clock() - self._last_sent >= self._server.behaviour.flush_seconds:
            self._tick()

    def _copies(self) -> int:
        """How often the next message goes out."""
        behaviour = self._server.behaviour
        if behaviour.doubled:
            behaviour.doubled -= 1
            return 1 if behaviour.doubled else 2
        return 1

    def _take(self) -> Committed | None:
        """Take the next transaction, if there is one."""
        if self._by_csn is not None:
            found = self._by_csn.take()
            return None if found is None else self._of_slice(found)
        with self._server.store.changed:
            committed = self._server.store.committed
            if self._next >= len(committed):
                return None
            self._next += 1
            return committed[self._next - 1]

    def _of_slice(self, of: Committed) -> Committed:
        """Leave out the rows of replicated tables, but on the first slice.

        Raises:
            CommandError: there are some, and the client did not say which slice this is.
        """
        replicated = [
            change for change in of.changes if any(table.is_replicated for table in change.tables)
        ]
        if replicated and self._options.slice_id == -1:
            raise CommandError("slice-id is needed to decode a replication table", "22023")
        if not replicated or self._options.slice_id == 0:
            return of
        kept = tuple(change for change in of.changes if change not in replicated)
        return dataclasses.replace(of, changes=kept)

    def _transaction(self, of: Committed) -> Iterator[bytes]:
        """Give the messages of one transaction."""
        options, stream = self._options, self._stream
        assert stream is not None
        is_excluded = of.user in options.exclude_users
        is_filtered = (options.only_local and of.origin != 0) or (
            is_excluded and not self._server.behaviour.is_sending_excluded
        )
        if not options.is_parallel and (of.is_elsewhere or not of.has_records):
            self.sent_lsn = self._out_lsn = of.end_lsn
            return
        profile = self._server.profile
        is_dropping = (
            options.is_parallel or profile.serial_drops
        ) and not options.enable_ddl_decoding
        is_told = profile.warns_of_ddl and self._session.hears_warnings
        if of.ddl_lsn is not None and is_dropping and is_told:
            yield self._ddl_notice(of) + gausswire.READY
        rendered = self._decoder.transaction(of, is_empty=is_filtered or of.is_elsewhere)
        last: bytes | None = None  # goes out when its commit may be confirmed, not before
        csn, lsn = options.start_position
        from_lsn = lsn if csn == of.csn else 0
        if isinstance(stream, ParallelStream):
            bodies = stream.transaction(rendered, from_lsn)
        else:
            bodies = stream.transaction(rendered)
        for body in bodies:
            if last is not None:
                self._out_lsn = self.sent_lsn
                yield last
            last = gausswire.copy_data(body)
        self.sent_lsn = of.end_lsn
        if not isinstance(stream, ParallelStream) or stream.buffer.is_empty:
            self._out_lsn = of.end_lsn
        if last is not None:
            yield last

    def _ddl_notice(self, of: Committed) -> bytes:
        """The notice, and the ReadyForQuery that a real server sends after each."""
        assert of.ddl_lsn is not None
        text = gausswire.ddl_notice(
            (xid, of.first_lsn, of.commit_lsn, of.ddl_lsn) for xid in (of.xid, *of.subxids)
        )
        return report(b"N", "WARNING", text, "01000") + b"Z" + struct.pack(">I", 5) + b"I"

    def _tick(self) -> None:
        """What the sender does once a second: empty the batch, say where the reader is."""
        if isinstance(self._stream, ParallelStream):
            body = self._stream.buffer.flush()
            self._out_lsn = self.sent_lsn
            if body is not None:
                self._put(gausswire.copy_data(body))
        if self._options.enable_heartbeat:
            self._put(self._heartbeat())
        self._keepalive()

    def _heartbeat(self) -> bytes:
        server = self._server
        lsn = read = flushed = server.wal_end
        if self._by_csn is not None:
            is_stuck = server.behaviour.is_idle_csn_stuck
            read = self._by_csn.sent_csn if is_stuck else self._by_csn.passed()
            flushed = server.store.next_csn
        stamp = (server.now_us() + gausswire.EPOCH_2000_US) // 1000
        letter = self._options.decode_style or "b"
        header = gausswire.wal_header(lsn, server.now_us())
        if self._options.is_parallel and letter == "b":
            framed = server.behaviour.heartbeat_framed
            return gausswire.copy_data(
                header + gausswire.heartbeat(read, flushed, stamp, framed=framed)
            )
        shown = (gausswire.lsn_text(read), gausswire.lsn_text(flushed))
        text = b"HeartBeat: %b %b %d" % (*shown, stamp)
        if self._options.sending_batch:
            text = struct.pack(">IQ", len(text) + 8, lsn) + text + bytes(4)
        return gausswire.copy_data(header + text)

    def _keepalive(self, *, wants_reply: bool = False) -> None:
        """Say where the reader is, which in parallel mode is ahead of what was sent."""
        server = self._server
        if self._options.is_parallel:
            position = 0 if self._is_first_keepalive else server.wal_end
        else:
            position = self._told_lsn = self._sent_all()
        self._is_first_keepalive = False
        role = gausswire.STANDBY if server.behaviour.is_standby else gausswire.PRIMARY
        body = gausswire.keepalive(position, server.now_us(), wants_reply=wants_reply, role=role)
        self._put(gausswire.copy_data(body))
        self._last_sent = server.clock()

    def _sent_all(self) -> int:
        """Up to where a serial stream has sent everything, WAL without commits included."""
        store, is_idle = self._server.store, not self._out
        with store.changed:
            if self._by_csn is not None:
                is_idle &= self._by_csn.passed() + 1 >= store.next_csn
            else:
                is_idle &= self._next >= len(store.committed)
            if is_idle and not self._server.behaviour.is_held:
                return store.wal_end
        sent = 0 if self._by_csn is not None else self.sent_lsn  # one with a later record may wait
        return max(sent, self._start, self._told_lsn)

    # --- what the client says ----------------------------------------------------------

    def _timed_out(self) -> bool:
        silence = self._server.clock() - self._last_heard
        if not self._timeout:
            return False
        if silence >= self._timeout:
            return True
        if silence >= self._timeout / 2 and not self._asked:
            self._asked = True
            if not self._server.behaviour.is_silent:
                self._keepalive(wants_reply=True)
        return False

    def _read(self) -> bool:
        """Read what is there; say whether the client has enough."""
        while True:
            try:
                data = self._session.socket.recv(65536)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not data:
                return True
            self._incoming += data
        while len(self._incoming) >= 5:
            (size,) = struct.unpack_from(">I", self._incoming, 1)
            if size < 4 or len(self._incoming) < size + 1:
                break
            letter, body = bytes(self._incoming[:1]), bytes(self._incoming[5 : size + 1])
            del self._incoming[: size + 1]
            self._last_heard = self._server.clock()
            self._asked = False
            if letter in (b"c", b"X"):
                return True
            if letter != b"d":
                self._server.violate(f"front-end letter {letter!r} in the stream")
                name = letter.decode("latin-1")
                raise CommandError(f'invalid standby message type "{name}"', "08P01")
            self._message(body)
        return False

    def _message(self, body: bytes) -> None:
        kind = body[:1]
        if kind != b"r":
            self._server.violate(f"message {kind!r} in the stream")
            if kind not in _KNOWN_SUBTYPES:
                raise CommandError(f"unexpected message type {kind!r}", "08P01")
            return
        if len(body) != 1 + gausswire.STATUS.size:
            self._server.violate(f"a status update of {len(body)} bytes")
        if len(body) < 1 + gausswire.STATUS.size:
            raise CommandError("insufficient data left in message", "08P01")
        status = gausswire.Status(*gausswire.STATUS.unpack_from(body, 1))
        self._advance(status.flush)
        if status.wants_reply:
            self._keepalive()

    def _advance(self, flush: int) -> None:
        """Move the slot to what the client says, however far that is."""
        if flush == 0:
            return
        with self._server.lock:
            slot = self._slot
            if self._load is not None:
                if flush > self._server.wal_end:
                    self._server.violate(f"confirmed {flush:X}, beyond all that was sent")
            elif self._by_csn is not None:
                if not self._by_csn.is_out(flush):
                    self._server.violate(f"confirmed {flush:X}, beyond a commit that was not sent")
                slot.confirmed_csn = max(slot.confirmed_csn, self._by_csn.confirm(flush))
            elif flush in self._server.told_lsns:
                if not self._is_out(flush):
                    self._server.violate(f"confirmed {flush:X}, beyond a commit that was not sent")
            elif flush > max(self.sent_lsn, self._start, self._told_lsn):
                self._server.violate(f"confirmed {flush:X}, beyond all that was sent")
            elif flush > self._start and not (
                self._is_commit_end(flush) or 0 < flush <= self._told_lsn
            ):
                self._server.violate(f"confirmed {flush:X}, which is no commit's end")
            slot.confirmed_lsn = max(slot.confirmed_lsn, flush)

    def _is_out(self, lsn: int) -> bool:
        """Whether every transaction whose commit record begins before a position was sent whole."""
        committed = self._server.store.committed
        at = bisect.bisect_left(committed, lsn, key=lambda one: one.commit_lsn)
        return at == 0 or committed[at - 1].end_lsn <= max(self._out_lsn, self._start)

    def _is_commit_end(self, lsn: int) -> bool:
        committed = self._server.store.committed
        at = bisect.bisect_left(committed, lsn, key=lambda one: one.end_lsn)
        return at < len(committed) and committed[at].end_lsn == lsn
