"""What the reader's process is told: JSON of one line, see `reader_settings`."""

import dataclasses
from typing import Any, Final

from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.address import SourceAddress, source_address
from gaussdecode.source.slot import LandingPosition

_SPOOL: Final = "spool"  # below the landing; made when the landing is opened


def reader_settings(config: Config, log: LandingPosition | None) -> dict[str, Any]:  # Any: JSON
    """Settings of ``gaussdecode.source.reader``.

    Args:
        config: checked.
        log: of the landing; None for one yet to begin.

    Returns:
        ========================= ==================================================
        ``kind``                  ``postgresql``, ``gaussdb`` or ``capture``
        ``conninfo``              connection string, may hold a password
        ``password``              or None
        ``is_insecure_allowed``   see `SourceAddress`
        ``file``                  of a capture
        ``slot``                  name
        ``publications``          names
        ``messages``              logical messages too
        ``only_local``            leave out what has an origin, where the server can
        ``white_tables``          pairs of schema and table
        ``unread``                OIDs of tables whose rows are stepped over
        ``left_out``              their titles
        ``receiver_timeout``      seconds of silence
        ``kept_buffer_bytes``     of a decoder's result buffer between batches
        ``desc_memory_bytes``     of descriptions of tables; above it they go to disk
        ``desc_directory``        where to
        ``config_name``           file of the configuration, for messages
        ``ha_port``               of GaussDB's replication, or None
        ``plugin``                of GaussDB's slot
        ``decoding``              fields of `DecodingConfig`
        ``start_position``        CSN and LSN, or None
        ``max_message_bytes``     longest message that GaussDB may send
        ``max_row_bytes``         largest row that is decoded
        ``log``                   record of `slot.LandingPosition`, or None
        ========================= ==================================================

        The daemon adds ``ring_fds`` (producer's ends: raw rings, or the one decoded ring
        with one decoder), ``control_fd`` and ``decoder_count``.

    Raises:
        ConfigError: the password file cannot be used.
    """
    source = config.source
    is_server = source.kind is not SourceKind.CAPTURE
    address = source_address(config) if is_server else SourceAddress("")
    return {
        "kind": source.kind.value,
        "conninfo": address.conninfo,
        "password": address.password,
        "is_insecure_allowed": address.is_insecure_allowed,
        "file": None if source.file is None else str(source.file),
        "slot": config.slot,
        "publications": list(source.publication),
        "messages": source.messages,
        "only_local": config.decoding.only_local,
        "white_tables": [list(pair) for pair in config.decoding.white_tables],
        "unread": [],
        "left_out": [],
        "receiver_timeout": source.receiver_timeout,
        "kept_buffer_bytes": config.decoding.kept_buffer_bytes,
        "desc_memory_bytes": config.decoding.desc_memory_bytes,
        "desc_directory": str(config.landing.root / _SPOOL),
        "config_name": config.path.name,
        "ha_port": source.ha_port,
        "plugin": source.plugin,
        "decoding": {**dataclasses.asdict(config.decoding), "given": dict(config.decoding.given)},
        "start_position": config.decoding.start_at,
        "max_message_bytes": source.max_message_size,
        "max_row_bytes": source.max_row_bytes,
        "log": None if log is None else log.to_record(),
    }
