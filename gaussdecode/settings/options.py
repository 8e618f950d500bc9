"""List GaussDB's logical decoding options, one row each.

Names, types, ranges and defaults are those of the product's documentation, and of openGauss's source where the
documentation is silent. They are the keys below ``decoding:`` in a configuration. Each row also says who
implements the option for each kind of source: the server, the daemon with the same meaning, both, or nobody,
with the reason. Only data; the rules between options are in `rules`.
"""

import dataclasses
from typing import Final

from gaussdecode.settings.option import AUTO, Doer, Option, Section, SourceKind, Support, Version
from gaussdecode.settings.types import (
    GIB,
    MAX_INT32,
    MIB,
    Boolean,
    Choice,
    CsnAndLsn,
    Integer,
    Text,
)

_MEMORY: Final[Version] = (3, 0, 3)
_ORIGIN: Final[Version] = (5, 0, 0)
_PASSED: Final = "passed to START_REPLICATION"


def _daemon(how: str, *accepts: object) -> Support:
    return Support(Doer.DAEMON, how, accepts or None)


def _refused(reason: str, *accepts: object) -> Support:
    return Support(Doer.REFUSED, reason, accepts)


def _server(how: str = _PASSED) -> Support:
    return Support(Doer.SERVER, how)


def _both(how: str) -> Support:
    return Support(Doer.BOTH, how)


DECODERS: Final = Integer(1, 20)
"""How many decoders there may be."""

_DECODERS_TOO: Final = Support(
    Doer.BOTH, "always passed on, also 1; the daemon starts as many decoders", range=DECODERS
)
_NO_USER: Final = "pgoutput does not send the user of a transaction"
_NO_USER_THERE: Final = "openGauss does not send the user of a transaction, GaussDB does"
_NO_DDL: Final = "pgoutput does not send DDL; a changed table shows as a new schema version"
_DDL_LANDS: Final = (
    "passed on; DDL lands in gd_ddl, and so does, unread, a record of a transaction that the daemon "
    "does not know"
)
_NO_DDL_OPTION: Final = (
    "openGauss has no such option; a changed table shows as a new schema version"
)
_ONE_SERVER: Final = "a PostgreSQL source is one server without shards"
_ONE_NODE: Final = "openGauss is one server without shards"
_SPOOL: Final = "it goes to spool/ below the landing; landing.memory-bytes applies too"
_SPOOL_TOO: Final = f"passed on when it is set; for the daemon's own memory {_SPOOL}"
_SPOOL_OLD: Final = f"this version has no such option; the daemon keeps to it: {_SPOOL}"
_SPOOLED_THERE: Final = Support(
    Doer.BOTH, _SPOOL_TOO, range=Integer(0, 100), since=_MEMORY, before=_daemon(_SPOOL_OLD)
)
_DESCRIPTIONS: Final = (
    "the descriptions unused for longest go to disk, and come back when they are needed; "
    "none is lost"
)
_BUFFERS: Final = (
    "between batches a decoder keeps change-log-max-len times max-decode-to-sender-cache-num "
    "bytes; a larger result is freed after use, and the next begins with 1024 bytes"
)
_BUFFERS_TOO: Final = f"passed on in parallel decoding; and {_BUFFERS}"
_SIGNS_OF_LIFE: Final = (
    "the server's keepalives always do this: liveness and /status use them; true makes peek "
    "print them"
)
_UTC: Final = (
    "landed values are UTC in any case, because sent values carry their offset; peek prints "
    "the server's values"
)
_ADVANCE: Final = (
    "in serial decoding the slot follows the server's sent position, through the commit log; "
    "in parallel decoding true is refused: there, with skip-empty-xacts: false, commits "
    "anywhere in the instance move an idle slot"
)
_DATA_LIMIT: Final = "peek and get end after the transaction that reaches it; a landing never ends"
_PEEK_ONLY: Final = "passed on by peek, for a slot in CSN order; a landing has an ordinary slot, for which it is not passed on"
_START: Final = (
    "the reader drops them in parallel decoding, where BEGIN has the CSN, with any output-order"
)

_SWITCH: Final = Boolean(takes_numbers=True)
_NAME_LIST: Final = Text(
    r"(?:[^\s,'\"]+(?:,[^\s,'\"]+)*)?", "names separated by commas, without spaces and quotes"
)
_OID_LIST: Final = Text(r"([0-9]+(,[0-9]+)*)?", "OIDs separated by commas, without spaces")
_TABLE_PART: Final = r"(?:\*|[^.,\s'\"*]+)\.(?:\*|[^,\s'\"*]+)"
WHITE_TABLE_LIST: Final = Text(
    rf"(?:{_TABLE_PART}(?:,{_TABLE_PART})*)?",
    "schema.table separated by commas, * for a whole schema or table name, no spaces or quotes",
)


_ON_BUT_GAUSSDB: Final[dict[SourceKind, object]] = {
    SourceKind.POSTGRESQL: True,
    SourceKind.CAPTURE: True,
}

OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        name="include-xids",
        type=_SWITCH,
        default=True,
        meaning="Transactions have their transaction id (column gd_xid).",
        postgresql=_daemon("false leaves gd_xid empty and peek prints no ids"),
        gaussdb=_server(),
    ),
    Option(
        name="skip-empty-xacts",
        type=_SWITCH,
        default=False,
        meaning="Transactions without a change in a listed table are not recorded.",
        postgresql=_daemon(
            "true leaves them out of gd_transactions; PostgreSQL 15 and later do not send "
            "transactions without changes for the publication"
        ),
        gaussdb=_both(
            "true saves network traffic on a busy server; the daemon drops transactions that "
            "white-table-list leaves empty. With false their commits move an idle slot"
        ),
    ),
    Option(
        name="include-timestamp",
        type=_SWITCH,
        default=True,
        default_parallel=False,
        own_defaults=dict.fromkeys(SourceKind, True),
        meaning="Changes have their commit time (column gd_ts).",
        postgresql=_daemon(
            "true in every mode, because readers need the commit time; false leaves gd_ts empty"
        ),
        gaussdb=_server("always passed on, with true unless the configuration says false"),
    ),
    Option(
        name="only-local",
        type=_SWITCH,
        default=True,
        meaning="Changes that the source received by replication are left out.",
        postgresql=_daemon("transactions with a replication origin are dropped"),
        gaussdb=_server(),
    ),
    Option(
        name="white-table-list",
        type=WHITE_TABLE_LIST,
        default="",
        meaning="The tables to decode; empty for all that the source sends.",
        postgresql=_daemon("rows of other tables are dropped before they are decoded"),
        gaussdb=_both(
            "the server filters, then the daemon; a name that the server's command cannot hold is "
            "passed on as schema.*"
        ),
    ),
    Option(
        name="max-txn-in-memory",
        type=Integer(0, 100),
        default=0,
        own_defaults=dict.fromkeys(SourceKind, 64),
        unit="MB",
        unit_bytes=MIB,
        memory_share=0.25,
        meaning="A transaction that uses more memory goes to disk; 0 sets no limit of its own.",
        postgresql=_daemon(_SPOOL),
        gaussdb=_both(_SPOOL_TOO),
        opengauss_own=_SPOOLED_THERE,
    ),
    Option(
        name="max-reorderbuffer-in-memory",
        type=Integer(0, 100),
        default=0,
        unit="GB",
        unit_bytes=GIB,
        memory_share=0.5,
        meaning="When all open transactions use more memory, the current one goes to disk; 0 sets no "
        "limit of its own.",
        postgresql=_daemon(_SPOOL),
        gaussdb=_both(_SPOOL_TOO),
        opengauss_own=_SPOOLED_THERE,
    ),
    Option(
        name="desc-memory-limit",
        type=Integer(10, 1024),
        default=100,
        unit="MB",
        meaning="Memory for descriptions of tables; above it some are moved out.",
        postgresql=_daemon(_DESCRIPTIONS),
        gaussdb=_both(f"passed on; and {_DESCRIPTIONS}"),
        opengauss_own=_daemon(_DESCRIPTIONS),
    ),
    Option(
        name="include-user",
        type=_SWITCH,
        default=False,
        meaning="Transactions have the name of their user.",
        postgresql=_refused(_NO_USER, False),
        gaussdb=_server(f"{_PASSED}; the name is in gd_transactions"),
        opengauss_own=_refused(_NO_USER_THERE, False),
    ),
    Option(
        name="exclude-userids",
        type=_OID_LIST,
        default="",
        meaning="Changes made by these users, by OID, are left out.",
        postgresql=_refused(_NO_USER, ""),
        gaussdb=_server(),
        opengauss_own=_refused(_NO_USER_THERE, ""),
    ),
    Option(
        name="exclude-users",
        type=_NAME_LIST,
        default="",
        meaning="Changes made by these users, by name, are left out.",
        postgresql=_refused(_NO_USER, ""),
        gaussdb=_both(
            f"{_PASSED}; with include-user: true the daemon also drops, and counts, transactions of "
            "these users that the server still sends"
        ),
        opengauss_own=_refused(_NO_USER_THERE, ""),
    ),
    Option(
        name="dynamic-resolution",
        type=_SWITCH,
        default=True,
        meaning="A user of exclude-users that does not exist is not an error.",
        postgresql=_refused(_NO_USER, True),
        gaussdb=_server(),
        opengauss_own=_refused(_NO_USER_THERE, True),
    ),
    Option(
        name="standby-connection",
        type=_SWITCH,
        default=False,
        meaning="Decode on a standby only; a primary is refused.",
        postgresql=_daemon(
            "refuses a server that is not in recovery, each time it connects; standbys decode from 16 on"
        ),
        gaussdb=_server(f"{_PASSED}; a primary ends the stream with its documented error"),
    ),
    Option(
        name="sender-timeout",
        type=Integer(0, MAX_INT32),
        default=None,
        unit="ms",
        meaning="The server ends the stream after this time without a message; 0 for never.",
        postgresql=_server(
            "sets wal_sender_timeout for this connection; unset, the server's value applies"
        ),
        gaussdb=_both(f"{_PASSED}; the daemon reports at least three times within it"),
        opengauss_own=Support(
            Doer.BOTH,
            f"{_PASSED}; the daemon reports at least three times within it",
            since=_MEMORY,
            before=_daemon(
                "this version has no such option and its logical_sender_timeout applies; the daemon "
                "reports at least three times within the value"
            ),
        ),
    ),
    Option(
        name="change-log-max-len",
        type=Integer(1, 65535),
        default=4096,
        unit="bytes",
        meaning="Length above which the buffer of one decoded change is released after use.",
        postgresql=_daemon(_BUFFERS),
        gaussdb=_both(_BUFFERS_TOO),
        opengauss_own=_daemon(_BUFFERS),
    ),
    Option(
        name="max-decode-to-sender-cache-num",
        type=Integer(1, 65535),
        default=4096,
        meaning="Number of decoded changes whose buffers are kept for reuse.",
        postgresql=_daemon(_BUFFERS),
        gaussdb=_both(_BUFFERS_TOO),
        opengauss_own=_daemon(_BUFFERS),
    ),
    Option(
        name="enable-heartbeat",
        type=_SWITCH,
        default=False,
        meaning="The stream has heartbeats with the server's position.",
        postgresql=_daemon(_SIGNS_OF_LIFE),
        gaussdb=_both(
            f"{_PASSED}; peek prints them, and none of their positions is ever confirmed"
        ),
        opengauss_own=_daemon(_SIGNS_OF_LIFE),
    ),
    Option(
        name="parallel-decode-num",
        type=dataclasses.replace(DECODERS, word=AUTO),
        default=1,
        own_defaults={SourceKind.POSTGRESQL: AUTO},
        meaning="Number of decoders; 1 decodes serially.",
        postgresql=_daemon(
            "1 decodes in the reader's process, more start that many decoders; auto starts with 1, "
            "and uses more where they were measured to be faster"
        ),
        gaussdb=_DECODERS_TOO,
    ),
    Option(
        name="output-order",
        type=Integer(0, 1),
        default=0,
        meaning="Order of transactions: 0 by commit LSN, 1 by CSN.",
        postgresql=_refused("PostgreSQL's WAL holds no commit sequence number", 0),
        gaussdb=_server(
            "passed on by peek, which then needs a slot with a confirmed_csn (`gaussdecode slot "
            "create --no-landing` makes one); get refuses 1. A landing has an ordinary slot with "
            "either value, which is fixed when it begins: the daemon puts transactions in CSN order"
        ),
        opengauss_own=_daemon(
            "openGauss sends in the order of commit records; the daemon puts transactions in CSN "
            "order. A landing's order is fixed when it begins"
        ),
    ),
    Option(
        name="auto-advance",
        type=_SWITCH,
        default=False,
        own_defaults=_ON_BUT_GAUSSDB,
        meaning="The slot advances when everything is confirmed and nothing waits to be sent.",
        postgresql=_daemon(
            "always, because an idle slot would otherwise keep WAL; false is refused", True
        ),
        gaussdb=_daemon(_ADVANCE),
    ),
    Option(
        name="skip-generated-columns",
        type=_SWITCH,
        default=False,
        meaning="Stored generated columns are left out of new rows.",
        postgresql=_daemon(
            "left out of the landing; they are sent only where the publication says so "
            "(publish_generated_columns, PostgreSQL 18)"
        ),
        gaussdb=_both("the server leaves them out, and the daemon does too"),
        opengauss_own=_daemon(
            "left out of the landing, by the catalogue; peek prints the stream as sent"
        ),
    ),
    Option(
        name="enable-ddl-decoding",
        type=_SWITCH,
        default=False,
        meaning="DDL statements are decoded.",
        postgresql=_refused(_NO_DDL, False),
        gaussdb=_server(_DDL_LANDS),
        opengauss_own=_refused(_NO_DDL_OPTION, False),
    ),
    Option(
        name="enable-ddl-json-format",
        type=_SWITCH,
        default=False,
        meaning="Decoded DDL statements are JSON.",
        postgresql=_refused(_NO_DDL, False),
        gaussdb=_server(),
        opengauss_own=_refused(_NO_DDL_OPTION, False),
    ),
    Option(
        name="timezone-is-utc",
        type=_SWITCH,
        default=False,
        own_defaults=_ON_BUT_GAUSSDB,
        meaning="Times with a time zone are sent in UTC.",
        postgresql=Support(
            Doer.SERVER, "always: the daemon sets TimeZone; false is refused", (True,)
        ),
        gaussdb=_both(f"{_PASSED}; landed values are UTC in any case"),
        opengauss_own=_daemon(_UTC),
    ),
    Option(
        name="decode-sequence",
        type=Boolean(only=False, takes_numbers=True),
        default=False,
        meaning="Changes of sequences are decoded; the product allows only false.",
        postgresql=_refused("PostgreSQL does not decode sequences", False),
        gaussdb=_refused("the product allows only false, which is not passed on", False),
        opengauss_own=_refused("openGauss does not decode sequences", False),
    ),
    Option(
        name="data-limit",
        type=Integer(0, 100),
        default=10,
        unit="GB",
        meaning="Size of output at which decoding ends; 0 for no limit.",
        postgresql=_daemon(_DATA_LIMIT),
        gaussdb=_daemon(f"not an option of a stream; {_DATA_LIMIT}"),
    ),
    Option(
        name="logical-receiver-num",
        section=Section.DISTRIBUTED,
        type=Integer(1, 20),
        default=1,
        meaning="Number of receivers of distributed decoding.",
        postgresql=_refused(_ONE_SERVER),
        gaussdb=_server(_PEEK_ONLY),
        opengauss_own=_refused(_ONE_NODE),
    ),
    Option(
        name="slice-id",
        section=Section.DISTRIBUTED,
        type=Integer(-1, 8192),
        default=-1,
        meaning="Number of the shard that a data node holds; -1 for none.",
        postgresql=_refused(_ONE_SERVER),
        gaussdb=_server(_PEEK_ONLY),
        opengauss_own=_refused(_ONE_NODE),
    ),
    Option(
        name="start-position",
        section=Section.DISTRIBUTED,
        type=CsnAndLsn(),
        default="",
        meaning="Transactions before this CSN, and changes of it before this LSN, are left out.",
        postgresql=_refused("PostgreSQL's WAL holds no commit sequence number", ""),
        gaussdb=_daemon(_START),
    ),
    Option(
        name="force-binary",
        section=Section.SERIAL,
        type=_SWITCH,
        default=False,
        meaning="Output in binary; without effect on a stream, as the product says.",
        postgresql=_refused("it has no effect on a stream", False),
        gaussdb=_server("passed on in serial decoding, where a stream is text in any case"),
    ),
    Option(
        name="decode-style",
        section=Section.PARALLEL,
        type=Choice(("j", "t", "b")),
        default="b",
        meaning="Output as JSON, text or binary.",
        postgresql=_daemon("style of peek's output; the landing is always Parquet"),
        gaussdb=_server(
            "style of the server's stream and of peek's output; the same Parquet lands from each, "
            "fastest from b"
        ),
    ),
    Option(
        name="sending-batch",
        section=Section.PARALLEL,
        type=Integer(0, 1),
        default=0,
        own_defaults={SourceKind.GAUSSDB: 1},
        meaning="1 collects decoded changes up to 1 MB before they are sent on.",
        postgresql=_daemon("1 makes peek flush its output by the megabyte, 0 by the change"),
        gaussdb=_server(
            "1 if it is not set; in styles t and j a landing always asks for 1, because unbatched "
            "text does not show where a commit ends"
        ),
    ),
    Option(
        name="parallel-queue-size",
        section=Section.PARALLEL,
        type=Integer(2, 1024, power_of_two=True),
        default=128,
        meaning="Batches in each queue between reader, decoders and collector.",
        postgresql=_daemon("limits the batches of each ring, in addition to its bytes"),
        gaussdb=_both("passed on; the daemon's own rings hold as many batches"),
        opengauss_own=Support(
            Doer.BOTH,
            "passed on; the daemon's own rings hold as many batches",
            since=_MEMORY,
            before=_daemon("this version has no such option; limits the daemon's own rings"),
        ),
    ),
    Option(
        name="include-originid",
        type=_SWITCH,
        default=False,
        own_defaults=_ON_BUT_GAUSSDB,
        meaning="Transactions have their replication origin; only in openGauss's source.",
        postgresql=_daemon("the origin is always in gd_transactions; false is refused", True),
        gaussdb=_refused("it is not among the options of GaussDB", False),
        opengauss_own=Support(
            Doer.SERVER,
            f"{_PASSED}; the number is in gd_transactions",
            since=_ORIGIN,
            before=_refused("openGauss has it from 5.0.0 on", False),
        ),
    ),
)
