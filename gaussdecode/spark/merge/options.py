"""What an apply is asked for, and what it reports."""

import dataclasses
from collections.abc import Callable, Collection, Mapping

from gaussdecode.spark.checks.data_tests import Failed, Tests
from gaussdecode.spark.log.masks import Masks
from gaussdecode.spark.merge.on_ddl import Policy
from gaussdecode.spark.merge.sizing import Sizes
from gaussdecode.spark.target.layout import Layouts

Progress = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of an apply.

    Attributes:
        tables: table names; None for all.
        history: keep closed intervals. A table without them gets them from now on, and so do tables
            that appear later.
        vectors: use deletion vectors: a file with few outdated rows stays, and a vector lists these
            rows. Readers must support vectors. From now on, for all tables.
        changelog: keep changes, partitioned by this column; ``gd_commit_date`` is the date of the
            commit; None for no new changelog.
        buckets: number of buckets of new tables; None to choose it by size.
        accept_gaps: accept gap entries, and entries that retention removed; recorded in the target.
        accept_suspects: accept suspect entries that name a table, among the new changes.
        accept_hidden_truncates: apply although the stream has no TRUNCATE and no DDL, so that a
            truncated table keeps its rows.
        format: ``delta`` or ``iceberg``; None for the target's format, or Delta Lake for a new
            target.
        hides: hide our columns in current tables of an Iceberg catalog; for a new target.
        catalog: name pattern in a catalog, see `catalog_names.full_pattern`; None for the target's
            pattern.
        masks: masks by table and column, for new tables, see `masks`; None for none.
        mask_key: key for hashes; needed by each apply if a table has hashes.
        tests: data tests, see `data_tests`; None for none.
        layouts: layouts of new tables, by name; None for none.
        on_ddl: what DDL commands do, by kind, see `on_ddl`; kinds that are not there do as by default.
        sizes: sizes of tasks and files.
    """

    tables: Collection[str] | None = None
    history: bool = False
    vectors: bool = False
    changelog: str | None = None
    buckets: int | None = None
    accept_gaps: bool = False
    accept_suspects: bool = False
    accept_hidden_truncates: bool = False
    format: str | None = None
    catalog: str | None = None
    hides: bool = False
    masks: Mapping[str, Masks] | None = None
    mask_key: bytes = dataclasses.field(default=b"", repr=False)
    tests: Tests | None = None
    layouts: Layouts | None = None
    on_ddl: Policy | None = None
    sizes: Sizes = dataclasses.field(default_factory=Sizes)


@dataclasses.dataclass(slots=True)
class Summary:
    """The result of an apply.

    Attributes:
        from_n: entry of the database before; -1 if it did not exist.
        n: entry of the database now.
        last_n: newest entry of the landing.
        tables: number of tables with new versions.
        rows: number of landed rows that were read.
        bytes_read: bytes read, of landed files and of the state.
        bytes_written: bytes of new files.
        stopped_at_gap: number of a gap entry it stopped before, or None.
        accepted_gaps: gap entries that it accepted.
        suspects: entries in it that may be incomplete.
        quarantined: entry at which a table entered quarantine, by directory.
        unmatched: number of changes that did not match a table's rows, by table name; see
            `merge.Merged`.
        stopped: reason in a sentence, by name, for tables that are stopped while others go on.
        suspect_tables: stopped tables that are before a suspect entry.
        ddl_tables: stopped tables that are before a change that ``--on-ddl`` stops at.
        gone: stopped tables that the source does not have any more.
        tests: results of each test, for the tables that were tested.
        part: CSN up to which entry n + 1 is applied too; 0 for nothing.
        landing_id: id of the landing that the entry numbers belong to.
    """

    from_n: int
    n: int
    last_n: int
    tables: int = 0
    rows: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    stopped_at_gap: int | None = None
    accepted_gaps: tuple[int, ...] = ()
    suspects: tuple[int, ...] = ()
    quarantined: dict[str, int] = dataclasses.field(default_factory=dict)
    unmatched: dict[str, int] = dataclasses.field(default_factory=dict)
    stopped: dict[str, str] = dataclasses.field(default_factory=dict)
    suspect_tables: tuple[str, ...] = ()
    ddl_tables: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    tests: list[Failed] = dataclasses.field(default_factory=list)
    part: int = 0
    landing_id: str = ""
