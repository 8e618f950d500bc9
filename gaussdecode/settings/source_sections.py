"""Declare the sections `source`, `sources` and `decoding`; sizes are bytes, time spans seconds."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from gaussdecode.settings.option import AUTO, Section
from gaussdecode.settings.rules import BY_NAME, SourceKind, given_decoders
from gaussdecode.settings.types import (
    GIB,
    HOUR,
    MIB,
    AbsolutePath,
    Boolean,
    Choice,
    Duration,
    Integer,
    Size,
    Text,
    TextList,
    about,
    setting,
)

MOST_CHOSEN: Final = 4
"""Decoders that are chosen at most: a reader brings no more than so many can decode."""

SLOT_NAME: Final = Text(r"[a-z0-9_]{1,63}", "1 to 63 of a-z, 0-9 and _")
GAUSSDB_SLOT_NAME: Final = Text(
    r"(?!(?i:gs_roach))(?!\.{1,2}\Z)[A-Za-z0-9_?.-]{1,63}",
    "1 to 63 of a-z, 0-9, _, ?, . and -, other than . and .., not beginning with gs_roach; upper "
    "case is read as lower case",
)
MPPDB_DECODING: Final = "mppdb_decoding"
SQL_DECODING: Final = "sql_decoding"
SQL_DECODING_OPTIONS: Final = frozenset(
    {"include-xids", "include-timestamp", "skip-empty-xacts", "only-local"}
)
"""All that the serial plug-in sql_decoding knows."""
PARALLEL_PLUGINS: Final[Mapping[str, str]] = {
    "parallel_binary_decoding": "b",
    "parallel_json_decoding": "j",
    "parallel_text_decoding": "t",
}
"""Plug-ins that decode in parallel only, with the decode-style that they mean."""
PLUGINS: Final = (MPPDB_DECODING, SQL_DECODING, *PARALLEL_PLUGINS)
NOT_STREAMED: Final = "off"
STREAMED: Final = "on"
STREAMED_PARALLEL: Final = "parallel"
_PUBLICATION: Final = Text(r"[^\0]{1,63}", "a name of 1 to 63 bytes")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """The source of changes, and its limits and timeouts."""

    kind: SourceKind = dataclasses.field(
        metadata=about(
            Choice(tuple(SourceKind)),
            "The source: a slot of a server, or a recording.",
            is_for_start=True,
        )
    )
    dsn: str = setting(
        "",
        Text(r"[^\0]+", "a libpq connection string"),
        "A libpq connection string with host, dbname and user. `sslmode` is `verify-full` unless "
        "set. The port is the one for ordinary SQL.",
        is_secret=True,
    )
    password_file: Path | None = setting(
        None,
        AbsolutePath(),
        "File with the password on its first line, mode 0600 or 0400. The systemd credential "
        "`password` takes precedence.",
    )
    password_command: tuple[str, ...] = setting(
        (),
        TextList(Text(r"[^\0]+", "a text"), is_set=False),
        "Program, by its absolute path, and its arguments. What it prints, without the last line "
        "end, is the password. It runs without a shell, for at most 10s, at each connection. Not "
        "with `password-file`; the systemd credential `password` takes precedence.",
    )
    publication: tuple[str, ...] = setting(
        (), TextList(_PUBLICATION), "Publications on the server; required with kind postgresql."
    )
    ha_port: int | None = setting(
        None,
        Integer(1, 65535),
        "With kind gaussdb: the port for replication, if it differs from the port in the dsn. "
        "Default: the dsn's port plus 1 if `enable_thread_pool` is on, else the dsn's port.",
    )
    plugin: str = setting(
        MPPDB_DECODING,
        Choice(PLUGINS),
        "With kind gaussdb: the slot's output plug-in. Parallel decoding works with any of them.",
    )
    invisible_truncate: str = setting(
        "warn",
        Choice(("warn", "stop")),
        "With kind gaussdb: the stream of parallel decoding shows no TRUNCATE and no DDL. `warn` "
        "reports this at every start and in layout.json. `stop` refuses to start.",
    )
    max_message_size: int = setting(
        1 * GIB,
        Size(2 * MIB, 2 * GIB - 1),
        "With kind gaussdb: the longest message that is accepted. One row may be that long.",
    )
    max_row_bytes: int = setting(
        1 * GIB,
        Size(2 * MIB, 2 * GIB - 1),
        "The largest accepted row, in bytes of its values. A larger row is an error of its table; "
        "see `landing.on-table-error`. No server sends more than the default. `gaussdecode check` "
        "prints the memory that such a row needs.",
    )
    file: Path | None = setting(
        None, AbsolutePath(), "The recording to read, with kind capture.", is_for_start=True
    )
    allow_insecure: bool = setting(
        False, Boolean(), "Accept a network connection whose `sslmode` is not verify-full."
    )
    messages: bool = setting(
        True,
        Boolean(),
        "Land logical messages (pg_logical_emit_message), and DDL that event triggers record.",
    )
    streaming: str = setting(
        NOT_STREAMED,
        Choice((NOT_STREAMED, STREAMED, STREAMED_PARALLEL)),
        "With kind postgresql. `on`: the server sends a large transaction while it is open, "
        "instead of keeping it on its disk until the commit. Its rows wait here, in memory or in "
        "spool/, and land when it commits. `parallel`: the same with PostgreSQL 16 and later, "
        "which also send where a rolled-back transaction ended. Older servers are asked for `on`.",
    )
    two_phase: bool = setting(
        False,
        Boolean(),
        "With kind postgresql, from version 15 on: receive prepared transactions at PREPARE "
        "TRANSACTION, not at their commit. Their rows wait in prepared/ and land at COMMIT "
        "PREPARED. A slot keeps this setting once it was used.",
    )
    connect_timeout: float = setting(10.0, Duration(2.0, HOUR), "Longest wait for a connection.")
    receiver_timeout: float = setting(
        60.0,
        Duration(1.0, HOUR),
        "After half of this time without data the server is asked for a reply. After all of it the "
        "connection is closed.",
    )
    retry_first: float = setting(
        1.0, Duration(0.1, HOUR), "Wait before the first new attempt; doubles each time."
    )
    retry_max: float = setting(60.0, Duration(0.1, HOUR), "Longest wait between attempts.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One of several sources of a landing, under `sources`: the settings of its own."""

    dsn: str = dataclasses.field(
        repr=False,
        metadata=about(
            Text(r"[^\0]+", "a libpq connection string"),
            "Connection string of this server, as `source.dsn`.",
            is_secret=True,
        ),
    )
    slot: str = dataclasses.field(
        metadata=about(
            Text(r"[^\0]{1,63}", "a name, as `slot`"),
            "Name of the replication slot on this server.",
            is_for_start=True,
        )
    )
    slice_id: int | None = setting(
        None,
        Integer(0, 8192),
        "With kind gaussdb: number of the data node. `peek` needs it for slots in CSN order. Set "
        "it for all sources or for none. A landing has ordinary slots, and does not need it.",
    )
    ha_port: int | None = setting(None, Integer(1, 65535), "As `source.ha-port`, if it differs.")
    password_file: Path | None = setting(
        None, AbsolutePath(), "As `source.password-file`, if it differs."
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DecodingConfig:
    """GaussDB's options that the daemon carries out; `given` holds all that were set.

    Made by `of`: defaults stand in the table of options alone. `chooses_decoders` says that
    ``parallel-decode-num`` is ``auto``, where the number is the one that is begun with.
    """

    parallel_decode_num: int
    chooses_decoders: bool
    parallel_queue_size: int
    white_table_list: str
    only_local: bool
    skip_empty_xacts: bool
    include_xids: bool
    include_timestamp: bool
    max_txn_in_memory: int
    max_reorderbuffer_in_memory: int
    desc_memory_limit: int
    exclude_users: str
    standby_connection: bool
    sender_timeout: int | None
    change_log_max_len: int
    max_decode_to_sender_cache_num: int
    enable_heartbeat: bool
    enable_ddl_decoding: bool
    output_order: int
    auto_advance: bool
    skip_generated_columns: bool
    data_limit: int
    start_position: str
    decode_style: str
    sending_batch: int
    given: Mapping[str, object]

    @classmethod
    def of(
        cls,
        kind: SourceKind,
        given: Mapping[str, object] = MappingProxyType({}),
        plugin: str = MPPDB_DECODING,
    ) -> Self:
        """Fill in the defaults of a kind of source, and the style that its plug-in means.

        Args:
            kind: kind of the source.
            given: options by name, with values of the right type.
            plugin: output plug-in of the slot.
        """
        decoders = given_decoders(given, kind)
        is_parallel = decoders not in (1, AUTO)
        values: dict[str, Any] = {  # Any: of many types, each checked by its option
            name.replace("-", "_"): given.get(
                name, option.effective_default(kind, is_parallel=is_parallel)
            )
            for name, option in BY_NAME.items()
        }
        values["chooses_decoders"] = decoders == AUTO
        values["parallel_decode_num"] = 1 if decoders == AUTO else decoders
        if "decode-style" not in given:
            values["decode_style"] = PARALLEL_PLUGINS.get(plugin, values["decode_style"])
        names = {field.name for field in dataclasses.fields(cls)} - {"given"}
        return cls(**{name: values[name] for name in names}, given=dict(given))

    @property
    def is_parallel(self) -> bool:
        """Whether decoders run in processes of their own."""
        return self.parallel_decode_num > 1

    @property
    def most_decoders(self) -> int:
        """How many decoders there may come to be."""
        return MOST_CHOSEN if self.chooses_decoders else self.parallel_decode_num

    def has(self, section: Section) -> bool:
        """Whether the options of a chapter of the product's documentation apply."""
        return self.chooses_decoders or {
            Section.PARALLEL: self.is_parallel,
            Section.SERIAL: not self.is_parallel,
        }.get(section, True)

    @property
    def white_tables(self) -> tuple[tuple[str, str], ...]:
        """The white list as (schema, table) pairs, ``*`` for all; empty lists everything."""
        return table_pairs(self.white_table_list)

    @property
    def excluded_users(self) -> tuple[str, ...]:
        """Names of those whose transactions are left out."""
        return tuple(self.exclude_users.split(",")) if self.exclude_users else ()

    @property
    def start_at(self) -> tuple[int, int] | None:
        """CSN and LSN before which changes are left out; None for none."""
        csn, slash, lsn = self.start_position.partition("/")
        return (int(csn), int(lsn)) if slash else None

    @property
    def desc_memory_bytes(self) -> int:
        """Memory for descriptions of tables, above which they go to disk."""
        return self.desc_memory_limit * MIB

    @property
    def kept_buffer_bytes(self) -> int:
        """What a decoder keeps of its result buffer between two batches."""
        return self.change_log_max_len * self.max_decode_to_sender_cache_num

    @property
    def data_limit_bytes(self) -> int | None:
        """Size of output at which peek and get end; None for no limit."""
        return self.data_limit * GIB or None


def table_pairs(listed: str) -> tuple[tuple[str, str], ...]:
    """A list of tables, as white-table-list has them, as (schema, table) pairs."""
    items = listed.split(",") if listed else []
    return tuple((item.partition(".")[0], item.partition(".")[2]) for item in items)
