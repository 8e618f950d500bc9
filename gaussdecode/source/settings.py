"""Settings of the reader's process, which it gets as one line of JSON."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.settings.source_sections import NOT_STREAMED, DecodingConfig
from gaussdecode.source.address import SourceAddress, source_address
from gaussdecode.source.slot import LandingPosition


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings:
    """The part of the configuration that ``gaussdecode.source.reader`` gets.

    The daemon adds ``ring_fds`` (producer's ends: raw rings, or the one decoded ring with one
    decoder), ``control_fd`` and ``decoder_count`` to the record.

    Attributes:
        kind: kind of the source.
        address: address of the server; an empty one of a capture.
        file: file of a capture.
        slot: name.
        publications: names.
        messages: logical messages too.
        streaming: transactions while they are open: off, on or parallel.
        two_phase: prepared transactions at their PREPARE.
        unread: OIDs of tables whose rows are stepped over.
        left_out: their titles.
        receiver_timeout: seconds of silence.
        desc_directory: directory for descriptions of tables above ``desc-memory-limit``.
        config_name: file of the configuration, for messages.
        ha_port: ha port of GaussDB's replication, or None.
        plugin: plugin of GaussDB's slot.
        decoding: options.
        max_message_bytes: longest message that GaussDB may send.
        max_row_bytes: largest row that is decoded.
        defers_large_rows: one of a prepared transaction is its table's trouble when that commits.
        log: log of the landing; None for one yet to begin.
    """

    kind: SourceKind
    address: SourceAddress
    file: str | None
    slot: str
    publications: tuple[str, ...]
    messages: bool
    streaming: str = NOT_STREAMED
    two_phase: bool = False
    unread: tuple[int, ...] = ()
    left_out: tuple[str, ...] = ()
    receiver_timeout: float
    desc_directory: str
    config_name: str
    ha_port: int | None
    plugin: str
    decoding: DecodingConfig
    max_message_bytes: int
    max_row_bytes: int
    defers_large_rows: bool
    log: LandingPosition | None

    @classmethod
    def of(cls, config: Config, log: LandingPosition | None, desc_directory: str) -> Self:
        """Take them out of a checked configuration; the rest is as the attributes say."""
        source = config.source
        is_server = source.kind is not SourceKind.CAPTURE
        return cls(
            kind=source.kind,
            address=source_address(config) if is_server else SourceAddress(""),
            file=None if source.file is None else str(source.file),
            slot=config.slot,
            publications=source.publication,
            messages=source.messages,
            streaming=source.streaming,
            two_phase=source.two_phase,
            receiver_timeout=source.receiver_timeout,
            desc_directory=desc_directory,
            config_name=config.path.name,
            ha_port=source.ha_port,
            plugin=source.plugin,
            decoding=dataclasses.replace(
                config.decoding,
                auto_advance=config.decoding.auto_advance or config.follows_keepalives,
            ),
            max_message_bytes=source.max_message_size,
            max_row_bytes=source.max_row_bytes,
            defers_large_rows=config.landing.is_quarantining,
            log=log,
        )

    def to_record(self) -> dict[str, Any]:  # Any: JSON
        """Make it fit for JSON."""
        kept = dataclasses.replace(self, address=self.address.kept())
        return {**dataclasses.asdict(kept), "kind": self.kind.value}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:  # Any: JSON
        """Read what `to_record` wrote; what else is in the record is left alone."""
        values = {field.name: record[field.name] for field in dataclasses.fields(cls)}
        log = values["log"]
        return cls(
            **{
                **values,
                "kind": SourceKind(values["kind"]),
                "address": SourceAddress(**values["address"]),
                "publications": tuple(values["publications"]),
                "unread": tuple(values["unread"]),
                "left_out": tuple(values["left_out"]),
                "decoding": DecodingConfig(**values["decoding"]),
                "log": None if log is None else LandingPosition.from_record(log),
            }
        )
