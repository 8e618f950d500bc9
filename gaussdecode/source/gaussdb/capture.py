"""Record a GaussDB stream, with the catalogue's descriptions of its tables.

The frames are those of `capture`, and two more kinds. They are in the order of the stream, between its data:

    N   a NoticeResponse: its letter and body; DDL in a transaction shows nowhere else
    T   what the catalogue said when a shape of a row was new: its letter and a JSON object,
        {"schema": ..., "name": ..., "table": ... or null} or {"types": [...]}

A replay has no server to ask, so recording translates the stream as the daemon would, and
writes each answer before the frame that needed it.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gaussdecode.errors import StreamError, WireError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.copyboth import Keepalive
from gaussdecode.protocol.gaussdb.copyboth import parse_server
from gaussdecode.protocol.gaussdb.options import (
    StreamRequest,
    is_batched,
    server_options,
    start_command,
    stream_style,
)
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import SourceAddress
from gaussdecode.source.capture import CaptureHeader, CaptureWriter, Limits, Style, record_frames
from gaussdecode.source.catalog import CatalogColumn, CatalogTable
from gaussdecode.source.gaussdb import server as gaussserver
from gaussdecode.source.gaussdb.catalog import CatalogType, GaussCatalog
from gaussdecode.source.gaussdb.connection import GaussConnection, connect
from gaussdecode.source.gaussdb.identity import nulls_of
from gaussdecode.source.gaussdb.relations import GaussRelations
from gaussdecode.source.gaussdb.server import GaussServerState
from gaussdecode.source.gaussdb.stream import GaussStream
from gaussdecode.source.gaussdb.translate._translator import Translator
from gaussdecode.source.relations import WhiteList
from gaussdecode.wire.letters import Letter

_HEADER_BYTES: Final = 25
_QUIET_KEEPALIVES: Final = 2  # of the server after the limit, without data between them


class RecordedCatalog:
    """Answers from a recording."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], CatalogTable | None] = {}
        self._types: dict[int, CatalogType] = {}

    def take(self, body: bytes) -> None:
        """Take the body of a T frame.

        Raises:
            WireError: it is damaged.
        """
        try:
            record = json.loads(body)
            if "types" in record:
                self._types |= {item["oid"]: CatalogType(**item) for item in record["types"]}
            else:
                self._tables[record["schema"], record["name"]] = _table(record["table"])
        except (ValueError, KeyError, TypeError) as error:
            raise WireError("a recorded table that cannot be read", 0) from error

    def look_up_table(self, schema: str, name: str) -> CatalogTable | None:
        """The table as it was; None when there was none."""
        return self._tables.get((schema, name))

    def types(self, oids: Iterable[int]) -> Mapping[int, CatalogType]:
        """All types that were ever asked for."""
        return self._types


def _table(record: dict[str, Any] | None) -> CatalogTable | None:  # Any: JSON
    if record is None:
        return None
    columns = tuple(CatalogColumn(**column) for column in record["columns"])
    index = tuple(record["identity_index"])
    described = {**record, "columns": columns, "identity_index": index, "reading": None}
    return CatalogTable(**described)


class RecordingCatalog:
    """Asks the server, and writes every answer down.

    Args:
        catalog: catalogue of the server.
        writer: writer of the capture.
    """

    def __init__(self, catalog: GaussCatalog, writer: CaptureWriter) -> None:
        self._catalog = catalog
        self._writer = writer

    def look_up_table(self, schema: str, name: str) -> CatalogTable | None:
        """See `GaussCatalog`."""
        found = self._catalog.look_up_table(schema, name)
        table = None if found is None else dataclasses.asdict(found)
        self._write({"schema": schema, "name": name, "table": table})
        return found

    def types(self, oids: Iterable[int]) -> Mapping[int, CatalogType]:
        """See `GaussCatalog`."""
        found = self._catalog.types(oids)
        self._write({"types": [dataclasses.asdict(one) for one in found.values()]})
        return found

    def _write(self, record: dict[str, Any]) -> None:  # Any: JSON
        self._writer.add(b"T" + json.dumps(record).encode())


def record_gaussdb(
    config: Config,
    address: SourceAddress,
    path: Path,
    limits: Limits,
    should_stop: Callable[[], bool],
) -> CaptureWriter:
    """Record a slot from where it stands; confirms nothing.

    Args:
        config: configuration of kind gaussdb.
        address: address of the SQL port.
        path: path of the new file.
        limits: when to stop; whichever comes first. A position is reached when a commit ends
            there, or when the server has read on to it and sends nothing more.
        should_stop: asked several times a second.

    Returns:
        The finished writer, for its counts.

    Raises:
        SourceError: the server failed or refused.
        ConfigError: the file cannot be made, or options cannot be had.
        DiskError: the file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        with connect(address, is_replication=False) as sql:
            place = gaussserver.stream_address(address, config.source.ha_port, sql)
            connection = stack.enter_context(connect(place, is_replication=True))
            server = gaussserver.read_server(sql, connection, config.slot)
        catalog = stack.enter_context(GaussCatalog(address))
        plugins = () if config.decoding.is_parallel else (config.source.plugin,)
        start_lsn = gaussserver.check_start(None, server, config.slot, plugins)
        options = server_options(StreamRequest.of(config), server.profile)
        with CaptureWriter(path, _header(config, server, start_lsn, options)) as writer:
            recorder = _Recorder(config, server, RecordingCatalog(catalog, writer), writer)
            connection.hear_warnings()
            connection.start_stream(start_command(config.slot, start_lsn, options))
            stream = GaussStream(connection, start_lsn, server.sender_timeout_ms)
            recorder.run(stream, limits, should_stop)
            writer.finish()
            stream.close()
    return writer


def wal_end(config: Config, address: SourceAddress) -> Lsn:
    """The present end of the server's WAL.

    Raises:
        SourceError: the server failed or refused.
    """
    with connect(address, is_replication=False) as sql:
        place = gaussserver.stream_address(address, config.source.ha_port, sql)
        stream: GaussConnection = connect(place)
        with stream:
            return gaussserver.read_server(sql, stream, config.slot).wal_end


def _header(
    config: Config, server: GaussServerState, start_lsn: Lsn, options: dict[str, str]
) -> CaptureHeader:
    assert server.slot is not None
    hides = config.decoding.is_parallel or not server.profile.sends_truncate
    return CaptureHeader(
        identity=server.identity(SourceKind.GAUSSDB, config.slot, server.slot.plugin),
        server_version=server.version,
        timeline=server.timeline,
        encoding=server.encoding,
        start_lsn=start_lsn,
        options=options,
        created_time=time.time(),
        style=Style(
            stream_style(StreamRequest.of(config)),
            is_batched(StreamRequest.of(config)),
            hides_truncate=hides,
        ),
    )


class _Recorder:
    """Writes frames, and what is needed to read them, in order."""

    def __init__(
        self,
        config: Config,
        server: GaussServerState,
        catalog: RecordingCatalog,
        writer: CaptureWriter,
    ) -> None:
        self._writer = writer
        nulls = nulls_of(server.version, stream_style(StreamRequest.of(config)))
        self._relations = GaussRelations(WhiteList(), catalog, nulls=nulls)
        self._translator = Translator(
            stream_style(StreamRequest.of(config)).encode(),
            is_batched(StreamRequest.of(config)),
            server.encoding,
            takes_ddl=config.decoding.enable_ddl_decoding,
        )
        self._end_lsn = 0
        self._quiet = 0
        self._read_lsn = 0

    def run(self, stream: GaussStream, limits: Limits, should_stop: Callable[[], bool]) -> None:
        def frames(wait_seconds: float) -> Iterator[bytes]:
            for frame in stream.frames(wait_seconds):
                self._add_notices(stream)
                yield frame
            self._add_notices(stream)

        try:
            record_frames(frames, self._add, self._writer, limits, should_stop)
        except StreamError as error:
            error.place(self._translator.lsn or self._end_lsn, self._translator.xid)
            raise

    def _add_notices(self, stream: GaussStream) -> None:
        for text in stream.notices:
            self._writer.add(b"NSWARNING\0M" + text.encode() + b"\0\0")
        stream.notices.clear()

    def _add(self, frame: bytes) -> int:
        """Write a frame, after what is needed to read it; up to where all has been written.

        A server that reads on and sends nothing has sent all of it.
        """
        message = parse_server(frame)
        if isinstance(message, Keepalive):
            self._quiet += 1
            self._read_lsn = message.wal_end
        else:
            self._quiet = 0
            for one in self._translator.feed_bytes(
                frame[_HEADER_BYTES:], message.start_lsn, self._relations.define
            ):
                if one[:1] == Letter.GAUSS_COMMIT:
                    self._end_lsn = int.from_bytes(one[1:9], "big")
        self._writer.add(frame)
        is_quiet = self._quiet >= _QUIET_KEEPALIVES
        return max(self._end_lsn, self._read_lsn if is_quiet else 0)
