"""GaussDB's logical decoding options, one row each.

Names, types, ranges and defaults are those of the product's documentation; they are the
keys below ``decoding:`` in a configuration. Each row also says who does it for each kind
of source: the server, the daemon with the same meaning, or nobody, and then why.
Validation, the plan that ``gaussdecode check`` prints and docs/configuration.md are made
from this table. It knows no file and no connection.
"""

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from typing import Final

from gaussdecode.values import (
    GIB,
    MAX_INT32,
    MIB,
    Boolean,
    Choice,
    Integer,
    Text,
    ValueType,
)


class SourceKind(enum.StrEnum):
    """Where changes come from."""

    POSTGRESQL = "postgresql"
    GAUSSDB = "gaussdb"
    CAPTURE = "capture"


class Section(enum.StrEnum):
    """The chapter of the product's documentation, which says when an option applies."""

    GENERAL = "general"
    DISTRIBUTED = "distributed"
    SERIAL = "serial"
    PARALLEL = "parallel"


class Doer(enum.StrEnum):
    """Who does what an option asks for."""

    SERVER = "server"
    DAEMON = "daemon"
    REFUSED = "refused"


@dataclasses.dataclass(frozen=True, slots=True)
class Support:
    """Who does an option for one kind of source.

    Attributes:
        by: the one who does it.
        how: what that means here; for refused ones the reason.
        accepts: the values that can be had, when not all can; of a refused option, those
            that ask for nothing.
    """

    by: Doer
    how: str
    accepts: tuple[object, ...] | None = None

    def can_have(self, value: object) -> bool:
        """Whether a value of the right type is possible."""
        return self.accepts is None or value in self.accepts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option.

    Attributes:
        name: as in the product.
        section: chapter of the product's documentation.
        type: its type and range; with `memory_share` that of serial decoding.
        default: the product's in serial decoding; None where the server computes it.
        default_parallel: the product's in parallel decoding, where it differs.
        own_default: ours on PostgreSQL and captures, where it differs.
        unit: of the number, or empty.
        unit_bytes: bytes in one unit, for `memory_share`.
        memory_share: in parallel decoding the maximum is this part of the process memory.
        meaning: one sentence.
        postgresql: who does it there; a capture file is read as the stream it recorded.
        gaussdb: who does it there.
    """

    name: str
    section: Section = Section.GENERAL
    type: ValueType
    default: object
    default_parallel: object = None
    own_default: object = None
    unit: str = ""
    unit_bytes: int = 1
    memory_share: float | None = None
    meaning: str
    postgresql: Support
    gaussdb: Support = Support(Doer.SERVER, "passed to START_REPLICATION")

    def support(self, kind: SourceKind) -> Support:
        """Say who does it for a kind of source."""
        return self.gaussdb if kind is SourceKind.GAUSSDB else self.postgresql

    def effective_default(self, kind: SourceKind, *, is_parallel: bool) -> object:
        """Say what holds when the configuration is silent."""
        if kind is not SourceKind.GAUSSDB and self.own_default is not None:
            return self.own_default
        if is_parallel and self.default_parallel is not None:
            return self.default_parallel
        return self.default

    def range(self, *, is_parallel: bool, memory_bytes: int | None) -> ValueType:
        """Say what is allowed in one mode.

        Args:
            is_parallel: parallel-decode-num is above 1.
            memory_bytes: memory of the process, the product's max_process_memory; None
                when it is not known.
        """
        if not is_parallel or self.memory_share is None:
            return self.type
        if memory_bytes is None:
            return Integer(0, MAX_INT32)
        return Integer(0, int(memory_bytes * self.memory_share) // self.unit_bytes)


def _daemon(how: str) -> Support:
    return Support(Doer.DAEMON, how)


def _refused(reason: str, *accepts: object) -> Support:
    return Support(Doer.REFUSED, reason, accepts)


_NO_USER: Final = "pgoutput does not send the user of a transaction"
_NO_DDL: Final = "pgoutput does not send DDL; a changed table shows in its schema versions"
_DISTRIBUTED: Final = "a PostgreSQL source is one server without shards"
_NAME_LIST: Final = Text(r"[^\s'\"]*", "names separated by commas, without spaces and quotes")
_OID_LIST: Final = Text(r"([0-9]+(,[0-9]+)*)?", "OIDs separated by commas, without spaces")
_TABLE_PART: Final = r"(?:\*|[^.,\s'\"*]+)\.(?:\*|[^,\s'\"*]+)"
WHITE_TABLE_LIST: Final = Text(
    rf"(?:{_TABLE_PART}(?:,{_TABLE_PART})*)?",
    "schema.table separated by commas, * for a whole schema or table name, no spaces or quotes",
)

OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        name="include-xids",
        type=Boolean(),
        default=True,
        meaning="Transactions carry their transaction id (column gd_xid).",
        postgresql=_daemon("false leaves gd_xid empty and peek prints no ids"),
    ),
    Option(
        name="skip-empty-xacts",
        type=Boolean(),
        default=False,
        meaning="Transactions without a change in a listed table are not recorded.",
        postgresql=_daemon(
            "true leaves them out of gd_transactions; PostgreSQL 15 and later send none "
            "that is empty for the whole publication"
        ),
    ),
    Option(
        name="include-timestamp",
        type=Boolean(),
        default=True,
        default_parallel=False,
        own_default=True,
        meaning="Changes carry the time of their commit (column gd_ts).",
        postgresql=_daemon(
            "true in every mode, because consumers need the commit time; false leaves gd_ts empty"
        ),
    ),
    Option(
        name="only-local",
        type=Boolean(),
        default=True,
        meaning="Changes that the source itself replicated from elsewhere are left out.",
        postgresql=_daemon("transactions that carry a replication origin are dropped"),
    ),
    Option(
        name="white-table-list",
        type=WHITE_TABLE_LIST,
        default="",
        meaning="The tables to decode; empty for all that the source sends.",
        postgresql=_daemon("rows of other tables are dropped before they are decoded"),
    ),
    Option(
        name="max-txn-in-memory",
        type=Integer(0, 100),
        default=0,
        own_default=64,
        unit="MB",
        unit_bytes=MIB,
        memory_share=0.25,
        meaning="A transaction that holds more memory goes to disk; 0 sets no limit of its own.",
        postgresql=_daemon("it goes to spool/ below the landing; landing.memory-bytes holds too"),
    ),
    Option(
        name="max-reorderbuffer-in-memory",
        type=Integer(0, 100),
        default=0,
        unit="GB",
        unit_bytes=GIB,
        memory_share=0.5,
        meaning="When all open transactions hold more memory, the current one goes to disk; "
        "0 sets no limit of its own.",
        postgresql=_daemon("it goes to spool/ below the landing; landing.memory-bytes holds too"),
    ),
    Option(
        name="desc-memory-limit",
        type=Integer(10, 1024),
        default=100,
        unit="MB",
        meaning="Table metadata above this is evicted by the server.",
        postgresql=_refused(
            "PostgreSQL sends a table's description once, so an evicted one could not be found again"
        ),
    ),
    Option(
        name="include-user",
        type=Boolean(),
        default=False,
        meaning="Transactions carry the name of the user who made them.",
        postgresql=_refused(_NO_USER, False),
    ),
    Option(
        name="exclude-userids",
        type=_OID_LIST,
        default="",
        meaning="Changes made by these users, by OID, are left out.",
        postgresql=_refused(_NO_USER, ""),
    ),
    Option(
        name="exclude-users",
        type=_NAME_LIST,
        default="",
        meaning="Changes made by these users, by name, are left out.",
        postgresql=_refused(_NO_USER, ""),
    ),
    Option(
        name="dynamic-resolution",
        type=Boolean(),
        default=True,
        meaning="A user of exclude-users who does not exist is not an error.",
        postgresql=_refused(_NO_USER, True),
    ),
    Option(
        name="standby-connection",
        type=Boolean(),
        default=False,
        meaning="Decode on a standby only; a primary is refused.",
        postgresql=_refused("the daemon follows whichever server the dsn names", False),
    ),
    Option(
        name="sender-timeout",
        type=Integer(0, MAX_INT32),
        default=None,
        unit="ms",
        meaning="The server ends the stream when it hears nothing for so long; 0 for never.",
        postgresql=Support(
            Doer.SERVER, "sets wal_sender_timeout for this connection; unset, the server's holds"
        ),
    ),
    Option(
        name="change-log-max-len",
        type=Integer(1, 65535),
        default=4096,
        unit="bytes",
        meaning="Length above which the server releases a buffer for one decoded change.",
        postgresql=_refused("it sizes buffers inside GaussDB; here ring.* sizes the queues"),
    ),
    Option(
        name="max-decode-to-sender-cache-num",
        type=Integer(1, 65535),
        default=4096,
        meaning="Number of decoded changes that the server keeps in its local cache.",
        postgresql=_refused("it sizes a cache inside GaussDB; here ring.* sizes the queues"),
    ),
    Option(
        name="enable-heartbeat",
        type=Boolean(),
        default=False,
        meaning="The server sends heartbeat messages in the stream.",
        postgresql=_refused("PostgreSQL's keepalives do this always", False),
    ),
    Option(
        name="parallel-decode-num",
        type=Integer(1, 20),
        default=1,
        meaning="Number of decoders; 1 decodes serially.",
        postgresql=_daemon("1 decodes in the reader's process, more start that many decoders"),
    ),
    Option(
        name="output-order",
        type=Integer(0, 1),
        default=0,
        meaning="Order of transactions: 0 by commit LSN, 1 by CSN.",
        postgresql=_refused("PostgreSQL's WAL holds no commit sequence number", 0),
    ),
    Option(
        name="auto-advance",
        type=Boolean(),
        default=False,
        own_default=True,
        meaning="The slot advances by itself when all is confirmed and nothing waits to be sent.",
        postgresql=Support(
            Doer.DAEMON, "always, else an idle slot would hold back WAL; false is refused", (True,)
        ),
        gaussdb=Support(Doer.SERVER, "the position never comes from a keepalive there"),
    ),
    Option(
        name="skip-generated-columns",
        type=Boolean(),
        default=False,
        meaning="Stored generated columns are left out of new rows.",
        postgresql=_refused(
            "the publication decides (publish_generated_columns, PostgreSQL 18); "
            "earlier versions never send them"
        ),
    ),
    Option(
        name="enable-ddl-decoding",
        type=Boolean(),
        default=False,
        meaning="DDL statements are decoded.",
        postgresql=_refused(_NO_DDL, False),
    ),
    Option(
        name="enable-ddl-json-format",
        type=Boolean(),
        default=False,
        meaning="Decoded DDL statements are JSON.",
        postgresql=_refused(_NO_DDL, False),
    ),
    Option(
        name="timezone-is-utc",
        type=Boolean(),
        default=False,
        own_default=True,
        meaning="Times with a zone are sent in UTC.",
        postgresql=Support(
            Doer.SERVER, "always: the daemon sets TimeZone; false is refused", (True,)
        ),
    ),
    Option(
        name="decode-sequence",
        type=Boolean(only=False),
        default=False,
        meaning="Changes of sequences are decoded; the product allows only false.",
        postgresql=_refused("PostgreSQL does not decode sequences", False),
    ),
    Option(
        name="data-limit",
        type=Integer(0, 100),
        default=10,
        unit="GB",
        meaning="Size at which pg_logical_get_area_changes stops; 0 for no limit.",
        postgresql=_refused("it belongs to an SQL function, not to a stream"),
        gaussdb=_refused("it belongs to an SQL function, not to a stream"),
    ),
    Option(
        name="logical-receiver-num",
        section=Section.DISTRIBUTED,
        type=Integer(1, 20),
        default=1,
        meaning="Number of receivers of a distributed decoding.",
        postgresql=_refused(_DISTRIBUTED),
    ),
    Option(
        name="slice-id",
        section=Section.DISTRIBUTED,
        type=Integer(-1, 8192),
        default=-1,
        meaning="Number of the shard that a data node holds; -1 for none.",
        postgresql=_refused(_DISTRIBUTED),
    ),
    Option(
        name="start-position",
        section=Section.DISTRIBUTED,
        type=Text(r"([0-9]+/[0-9]+)?", "two whole numbers joined by a slash, CSN/LSN"),
        default="",
        meaning="Transactions before this CSN, and changes of it before this LSN, are left out.",
        postgresql=_refused("the daemon starts where its own commit log ends"),
        gaussdb=_refused("the daemon starts where its own commit log ends"),
    ),
    Option(
        name="force-binary",
        section=Section.SERIAL,
        type=Boolean(only=False),
        default=False,
        meaning="Output in binary; without effect on a stream, as the product says.",
        postgresql=_refused("it has no effect on a stream", False),
    ),
    Option(
        name="decode-style",
        section=Section.PARALLEL,
        type=Choice(("j", "t", "b")),
        default="b",
        meaning="Output as JSON, text or binary.",
        postgresql=_daemon("style in which peek prints, b as t; what lands is Parquet always"),
        gaussdb=Support(Doer.SERVER, "the stream is read in style b; peek prints in the style set"),
    ),
    Option(
        name="sending-batch",
        section=Section.PARALLEL,
        type=Integer(0, 1),
        default=0,
        meaning="1 gathers decoded changes to 1 MB before they are sent on.",
        postgresql=_daemon("1 makes peek flush its output by the megabyte, 0 by the change"),
    ),
    Option(
        name="parallel-queue-size",
        section=Section.PARALLEL,
        type=Integer(2, 1024, power_of_two=True),
        default=128,
        meaning="Entries in each queue between reader, decoders and collector.",
        postgresql=_daemon("bounds the entries of each ring, next to its bytes"),
    ),
)

BY_NAME: Final[Mapping[str, Option]] = {option.name: option for option in OPTIONS}


def refusals(given: Mapping[str, object], kind: SourceKind) -> Iterator[tuple[str, str]]:
    """Find options that do not apply together or that nobody can do.

    Args:
        given: options that the configuration sets, with values of the right type.
        kind: of the source.

    Yields:
        The option's name and the reason, with what to do.
    """
    is_serial = given.get("parallel-decode-num", 1) == 1
    is_lsn_order = given.get("output-order", 0) == 0
    for name, value in given.items():
        option = BY_NAME[name]
        support = option.support(kind)
        if option.section is Section.PARALLEL and is_serial:
            yield name, "applies only with parallel-decode-num from 2 to 20; leave it out"
        elif not support.can_have(value):
            yield name, f"{_spell(option, value)} is not possible on {kind}: {support.how}"
        elif option.section is Section.DISTRIBUTED and is_lsn_order:
            yield name, "applies only with output-order 1; leave it out"


def _spell(option: Option, value: object) -> str:
    return option.type.show(value)
