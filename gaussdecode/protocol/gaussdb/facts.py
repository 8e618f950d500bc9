"""List the limits of openGauss and GaussDB by version, as one table.

Each row says in which versions something holds, and its evidence: a file of the server's source with the tags
it was read at, or the run that showed it. `check`, the daemon, the table in docs/versions.md and the
simulated server's versions use these rows. GaussDB's own source is not public: there each row says what is
assumed.
"""

import dataclasses
from typing import Final

Rank = tuple[int, int, int, int]

VERSIONS: Final = (
    "2.1.0",
    "3.0.0",
    "3.0.3",
    "3.1.0",
    "5.0.0",
    "5.1.0",
    "6.0.0-RC1",
    "6.0.0",
    "6.0.2",
    "7.0.0-RC1",
)
"""Versions whose sources were read, because a fact begins or ends with them."""

_L: Final = "src/gausskernel/storage/replication/logical"


def rank(version: tuple[int, int, int], *, is_candidate: bool = False) -> Rank:
    """Order versions; a release candidate comes before its release."""
    return (*version, 0 if is_candidate else 1)


def _rank_of(text: str) -> Rank:
    numbers, _, candidate = text.partition("-")
    major, minor, patch = (int(part) for part in numbers.split("."))
    return rank((major, minor, patch), is_candidate=bool(candidate))


@dataclasses.dataclass(frozen=True, slots=True)
class Fact:
    """One row.

    Attributes:
        title: the fact.
        spans: first version, and the first one in which it no longer holds; None is open.
        in_gaussdb: assumption about GaussDB.
        source: source who says so; files as of the tags v2.1.0 to v7.0.0-RC1.
    """

    title: str
    spans: tuple[tuple[str, str | None], ...]
    in_gaussdb: bool
    source: str

    def holds(self, version: Rank) -> bool:
        """Whether it holds in a version of openGauss."""
        return any(
            _rank_of(since) <= version and (before is None or version < _rank_of(before))
            for since, before in self.spans
        )


PARALLEL: Final = Fact(
    "parallel decoding", (("3.0.0", None),), True, f"{_L}/parallel_decode_worker.cpp"
)
MEMORY_OPTIONS: Final = Fact(
    "options of memory, queues and timeout",
    (("3.0.3", None),),
    True,
    f"{_L}/parallel_decode_worker.cpp, ParseDecodingOption()",
)
CONFIRMED_FLUSH: Final = Fact(
    "a slot shows its confirmed position",
    (("3.0.3", None),),
    True,
    "src/gausskernel/storage/replication/slotfuncs.cpp",
)
ORIGINS: Final = Fact(
    "include-originid", (("5.0.0", None),), False, f"{_L}/parallel_decode_worker.cpp"
)
BEGIN_XID: Final = Fact(
    "BEGIN carries the xid in parallel decoding",
    (("6.0.0", None),),
    False,
    f"{_L}/parallel_reorderbuffer.cpp, ParallelOutputBegin()",
)
DROPS_PARALLEL: Final = Fact(
    "parallel decoding drops rows that follow DDL in their transaction",
    (("3.0.0", None),),
    True,
    f"{_L}/parallel_reorderbuffer.cpp; seen on 5.0.0",
)
DROPS_SERIAL: Final = Fact(
    "serial decoding drops rows that follow DDL in their transaction",
    (("2.1.0", "6.0.0-RC1"),),
    True,
    f"{_L}/reorderbuffer.cpp, stopDecoding; seen on 5.0.0",
)
WARNS: Final = Fact(
    "a notice announces these dropped rows, if the session asks for warnings",
    (("3.0.3", None),),
    True,
    f"{_L}/logical.cpp; src/gausskernel/storage/replication/syncrep.cpp; seen on 5.0.0",
)
TRUNCATE: Final = Fact(
    "serial decoding sends TRUNCATE of a table",
    (("6.0.0", None),),
    False,
    f"{_L}/decode.cpp, XLOG_HEAP3_TRUNCATE; that it is missing was seen on 5.0.0",
)
TRUNCATE_PARTITION: Final = Fact(
    "TRUNCATE of a single partition is sent", (), False, f"{_L}/decode.cpp, XLOG_HEAP3_TRUNCATE"
)
DDL_MESSAGES: Final = Fact(
    "serial decoding sends DDL, where a publication has `ddl`",
    (("6.0.0", None),),
    False,
    "contrib/mppdb_decoding, contrib/sql_decoding: pg_decode_ddl()",
)
OMITS_NULLS: Final = Fact(
    "NULLs are left out of old rows",
    (("2.1.0", "3.0.3"), ("3.1.0", "5.0.0")),
    False,
    f"{_L}/parallel_decode.cpp, AppendTuple(); contrib/mppdb_decoding; sent on 5.0.0, as seen",
)
ROUNDS_MPPDB: Final = Fact(
    "mppdb_decoding rounds floating point numbers",
    (("2.1.0", "3.0.0"),),
    False,
    "contrib/mppdb_decoding: extra_float_digits; exact on 5.0.0, as seen",
)
ROUNDS_SQL: Final = Fact(
    "sql_decoding rounds floating point numbers",
    (("3.0.0", None),),
    True,
    "contrib/sql_decoding: extra_float_digits",
)
COLUMN_STORE: Final = Fact(
    "changes of tables stored by column are sent", (), False, "seen on 5.0.0"
)
OVERTAKEN_PARALLEL: Final = Fact(
    "parallel decoding sends an upsert that another session overtakes as INSERT and DELETE without columns",
    (("3.0.0", None),),
    True,
    f"{_L}/decode.cpp: XLH_DELETE_IS_SUPER is not looked at; seen on 6.0.2",
)
OVERTAKEN_SERIAL: Final = Fact(
    "serial decoding sends such an upsert in the same way",
    (("2.1.0", "6.0.2"), ("7.0.0-RC1", None)),
    True,
    f"{_L}/reorderbuffer.cpp, ReorderBufferRemoveChangeForUpsert(); seen on 6.0.2",
)
OVERTAKEN_USTORE: Final = Fact(
    "for such an upsert into a ustore table the INSERT is sent, and nothing that takes it back",
    (("2.1.0", None),),
    True,
    "src/gausskernel/storage/access/ustore/knl_uheap.cpp; seen on 6.0.2",
)
AREA: Final = Fact(
    "rows that follow DDL can be looked for with `pg_logical_get_area_changes`",
    (("3.0.0", None),),
    False,
    f"{_L}/logicalfuncs.cpp; seen on 6.0.2",
)
STANDBY_XID: Final = Fact(
    "a standby gives the transaction id that a snapshot's view begins with",
    (),
    False,
    "src/gausskernel/storage/access/transam/varsup.cpp, GetNewTransactionId()",
)

FACTS: Final = (
    DROPS_PARALLEL,
    DROPS_SERIAL,
    WARNS,
    TRUNCATE,
    TRUNCATE_PARTITION,
    DDL_MESSAGES,
    OMITS_NULLS,
    ROUNDS_MPPDB,
    ROUNDS_SQL,
    OVERTAKEN_PARALLEL,
    OVERTAKEN_SERIAL,
    OVERTAKEN_USTORE,
    COLUMN_STORE,
    AREA,
    STANDBY_XID,
    PARALLEL,
    MEMORY_OPTIONS,
    CONFIRMED_FLUSH,
    ORIGINS,
    BEGIN_XID,
)
"""All rows; those about lost changes first."""


def cells(fact: Fact) -> list[str]:
    """A row of the printed table: what holds in each version, then in GaussDB."""
    found = ["yes" if fact.holds(_rank_of(version)) else "-" for version in VERSIONS]
    return [*found, "assumed" if fact.in_gaussdb else "-"]
