"""Record a stream of PostgreSQL into a capture file."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import Keepalive, parse_server
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.capture import CaptureHeader, CaptureWriter, Limits, record_frames
from gaussdecode.source.postgresql import slot as slots
from gaussdecode.source.postgresql.connection import connect
from gaussdecode.source.postgresql.stream import Stream
from gaussdecode.source.slot import PLUGIN, ServerState
from gaussdecode.source.start import check_start
from gaussdecode.wire.letters import Letter

_COMMIT_BYTES: Final = 26
_STREAM_COMMIT_BYTES: Final = 30
_PREPARED_BYTES: Final = 31
_PREPARED: Final = frozenset(
    {Letter.PREPARE, Letter.STREAM_PREPARE, Letter.COMMIT_PREPARED, Letter.ROLLBACK_PREPARED}
)


def record(
    config: Config,
    address: SourceAddress,
    path: Path,
    limits: Limits,
    should_stop: Callable[[], bool],
) -> CaptureWriter:
    """Record a slot from where it stands; confirms nothing.

    Args:
        config: configuration of kind postgresql.
        address: address of the server.
        path: path of the new file.
        limits: when to stop; whichever comes first.
        should_stop: asked several times a second.

    Returns:
        The finished writer, for its counts.

    Raises:
        SourceError: the server failed or refused.
        ConfigError: the file cannot be made.
        DiskError: the file cannot be written.
    """
    publications = config.source.publication
    with connect(address) as connection:
        server = slots.read_server(connection, config.slot, publications)
        start_lsn = check_start(None, server, config.slot, two_phase=None)
        options = slots.stream_options(
            server.version,
            publications,
            messages=config.source.messages,
            only_local=config.decoding.only_local,
            streaming=config.source.streaming,
            two_phase=server.slot is not None and server.slot.is_two_phase,
        )
        encoding = connection.encoding.name
        header = _header_of(config.slot, server, start_lsn, options, encoding)
        slots.start_stream(connection, config.slot, start_lsn, options)
        with CaptureWriter(path, header) as writer:
            stream = Stream(connection, start_lsn, server.sender_timeout_ms)

            def add(frame: bytes) -> int:
                writer.add(frame)
                return reached(frame)

            record_frames(stream.frames, add, writer, limits, should_stop)
            writer.finish()
            stream.close()
    return writer


def _header_of(
    slot: str, server: ServerState, start_lsn: Lsn, options: dict[str, str], stream_encoding: str
) -> CaptureHeader:
    return CaptureHeader(
        identity=server.identity(SourceKind.POSTGRESQL, slot, PLUGIN),
        server_version=server.version,
        timeline=server.timeline,
        encoding=server.encoding,
        start_lsn=start_lsn,
        options=options,
        created_time=time.time(),
        stream_encoding=stream_encoding,
    )


def reached(frame: bytes) -> int:
    """Up to where every commit has been sent, as far as one frame tells; else 0."""
    message = parse_server(frame)
    if isinstance(message, Keepalive):
        return message.wal_end
    payload = message.payload
    if payload[:1] == Letter.COMMIT and len(payload) >= _COMMIT_BYTES:
        return int.from_bytes(payload[10:18], "big")
    if payload[:1] in _PREPARED and len(payload) >= _PREPARED_BYTES:
        return int.from_bytes(payload[10:18], "big")
    if payload[:1] == Letter.STREAM_COMMIT and len(payload) >= _STREAM_COMMIT_BYTES:
        return int.from_bytes(payload[14:22], "big")
    return 0
