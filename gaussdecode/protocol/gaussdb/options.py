"""Build START_REPLICATION for GaussDB and openGauss: which options are sent, and how.

Given a checked configuration and the server's version, gives texts. The options table decides: an option is
sent when the configuration sets it and this version of the server knows it. Four are always sent:

========================= ==============================================================
``parallel-decode-num``   also 1, because the server's own default can be changed
``include-timestamp``     readers of a landing need the commit time
``decode-style``          in parallel decoding; what the reader expects
``sending-batch``         in parallel decoding; 1 for a landing
========================= ==============================================================

What the server's pre-parser asks of the command is in `commands`.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final, Self

from gaussdecode.errors import ConfigError
from gaussdecode.model.lsn import Lsn
from gaussdecode.protocol.gaussdb.commands import is_balanced, literal, start_replication
from gaussdecode.settings.option import Option, Section, ServerProfile
from gaussdecode.settings.options import OPTIONS
from gaussdecode.settings.rules import SourceKind, refusals
from gaussdecode.settings.sections import Config
from gaussdecode.settings.source_sections import SQL_DECODING, SQL_DECODING_OPTIONS, DecodingConfig
from gaussdecode.wire.letters import StreamStyle

_KIND: Final = SourceKind.GAUSSDB
_ALWAYS: Final = frozenset({"parallel-decode-num", "include-timestamp"})
_ALWAYS_PARALLEL: Final = frozenset({"decode-style", "sending-batch"})
_PARALLEL_ONLY: Final = frozenset({"change-log-max-len", "max-decode-to-sender-cache-num"})
# By CSN the daemon puts transactions in their order itself: what a server sends in that order has no
# position up to which it could be confirmed.
_NOT_OF_A_LANDING: Final = frozenset({"output-order", "slice-id", "logical-receiver-num"})
_MAX_LIST_BYTES: Final = 500  # of the 1023 that a command may have
_ALL: Final = "*"
_SERIAL_STYLES: Final = {SQL_DECODING: StreamStyle.SQL}


@dataclasses.dataclass(frozen=True, slots=True)
class StreamRequest:
    """As much of a configuration as decides what the server is told.

    Attributes:
        config_name: its file, for messages.
        plugin: output plug-in of the slot.
        decoding: options.
    """

    config_name: str
    plugin: str
    decoding: DecodingConfig

    @classmethod
    def of(cls, config: Config) -> Self:
        """Take it out of a configuration of kind gaussdb."""
        return cls(config.path.name, config.source.plugin, config.decoding)


def stream_style(request: StreamRequest) -> StreamStyle:
    """The form of the stream."""
    if request.decoding.is_parallel:
        return StreamStyle(request.decoding.decode_style)
    return _SERIAL_STYLES.get(request.plugin, StreamStyle.SERIAL)


def is_batched(request: StreamRequest, *, is_landing: bool = True) -> bool:
    """Whether the server gathers messages.

    A landing in style t or j always asks for it: unbatched text does not say where a
    commit ends.
    """
    if not request.decoding.is_parallel:
        return False
    is_text = request.decoding.decode_style != StreamStyle.BINARY
    return bool(request.decoding.sending_batch) or (is_landing and is_text)


def server_options(
    request: StreamRequest, profile: ServerProfile, *, is_landing: bool = True
) -> dict[str, str]:
    """Choose what the server is told.

    Args:
        request: request for a server.
        profile: profile of the server that was found.
        is_landing: true for a landing, false for peek and get.

    Returns:
        Values by option name, in the order of the table.

    Raises:
        ConfigError: the configuration asks for what this server and the daemon cannot do;
            one line each, with the key.
    """
    problems = list(refusals(request.decoding.given, _KIND, profile))
    if problems:
        lines = [f"{request.config_name}: decoding.{name}: {reason}" for name, reason in problems]
        raise ConfigError("\n".join(lines))
    chosen = {}
    for option in OPTIONS:
        value = _value(option, request, profile, is_landing=is_landing)
        if value is not None:
            chosen[option.name] = value
    return chosen


def _value(
    option: Option, request: StreamRequest, profile: ServerProfile, *, is_landing: bool
) -> str | None:
    """Spell one option for the server; None to say nothing about it."""
    decoding = request.decoding
    name = option.name
    if not _is_known(option, request, profile):
        return None
    if is_landing and name in _NOT_OF_A_LANDING:
        return None
    if is_landing and decoding.output_order and name == "skip-empty-xacts":
        return (
            "false"  # commits without rows tell how far the stream is; the daemon leaves them out
        )
    if name == "sending-batch":
        return str(int(is_batched(request, is_landing=is_landing)))
    if name == "white-table-list":
        return server_white_list(decoding.white_tables) or None
    always = _ALWAYS | (_ALWAYS_PARALLEL if decoding.is_parallel else frozenset())
    if name not in decoding.given and name not in always:
        return None
    value = getattr(decoding, name.replace("-", "_"), decoding.given.get(name))
    return option.type.show(value).removeprefix('""')


def _is_known(option: Option, request: StreamRequest, profile: ServerProfile) -> bool:
    """Whether this server takes the option in this mode."""
    is_parallel = request.decoding.is_parallel
    if not option.support(_KIND, profile).is_passed_on:
        return False
    if option.name in _PARALLEL_ONLY or option.section is Section.PARALLEL:
        return is_parallel
    if option.section is Section.SERIAL and is_parallel:
        return False
    is_sql = request.plugin == SQL_DECODING and not is_parallel
    return not is_sql or option.name in SQL_DECODING_OPTIONS


def server_white_list(tables: Iterable[tuple[str, str]]) -> str:
    """Spell white-table-list so that the server takes it, at least as wide as it was meant.

    A name with an unbalanced bracket cannot stand in the command, and the command has a
    longest length: then whole schemas are asked for, or everything, and the daemon filters. Items with
    ``*`` stand last: openGauss 3.0.0 to 3.0.3, 3.1 and 5.0.0 read a pointer that they never set for an item
    after one of these (`ParseSchemaAndTableName`).
    """
    listed = list(tables)
    exact = [f"{schema}.{name if is_balanced(name) else _ALL}" for schema, name in listed]
    for items in (exact, [f"{schema}.{_ALL}" for schema, _ in listed]):
        text = ",".join(sorted(dict.fromkeys(items), key=lambda item: _ALL in item.split(".")))
        if is_balanced(text) and len(text.encode()) <= _MAX_LIST_BYTES:
            return text
    return ""


def start_command(slot: str, lsn: Lsn | int, options: Mapping[str, str]) -> str:
    """Build START_REPLICATION.

    Args:
        slot: name.
        lsn: start of the stream; 0 for the position of the slot.
        options: options from `server_options`.

    Raises:
        ConfigError: a name or value that the server's check of the command would refuse.
    """
    for name, value in options.items():
        if not is_balanced(literal(value)):
            raise ConfigError(
                f"decoding.{name}: the server refuses a command with unbalanced quotes or brackets; "
                "balance them, or leave the option out"
            )
    return start_replication(slot, Lsn(lsn), options)
