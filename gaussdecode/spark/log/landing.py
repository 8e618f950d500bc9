"""Read a landing: its identity, points in its log to travel to, and its schema files.

Given the root of a landing. Reads only files that the log names, never a directory of data files, and writes
nothing.
"""

import bisect
import dataclasses
import datetime as dt
import functools
import json
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from gaussdecode.errors import ConfigError, LandingError, unreadable
from gaussdecode.model.csns import Csns, Cut, cut_at
from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import EntryKind, SourcePosition
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.seal import NewerFormatError, check_version
from gaussdecode.model.title import table_title
from gaussdecode.spark.log.commit_log import Log
from gaussdecode.spark.log.place import Given, Place, directories_in, names_in, place_of
from gaussdecode.spark.log.schema import SOURCE

_LAYOUT_VERSION: Final = 1
_HIDES_TRUNCATE: Final = "hides-truncate"
_MIRRORED: Final = "mirrored"
_SEVERAL: Final = "several-sources"
_DDL: Final = "ddl"
_CAPABILITIES: Final = frozenset(
    {"checkpoints", "compact", "retention", _HIDES_TRUNCATE, _SEVERAL, _DDL}
)
_SCHEMA: Final = re.compile(r"[0-9a-f]+\.json")
_POLL_SECONDS: Final = 0.2
_NUDGE_SECONDS: Final = 1.0
ORDER_COLUMNS: Final = {
    "lsn": ("gd_epoch", "gd_lsn", "gd_seq"),
    "csn": ("gd_epoch", "gd_csn", "gd_lsn", "gd_seq"),
}
"""Order columns by the order in the layout; with several sources see `order_columns`."""

Json = dict[str, Any]  # decoded JSON


def order_columns(order: str, sources: int) -> tuple[str, ...]:
    """Columns that order the changes of a landing.

    Several sources have a common order by CSN only. By LSN each source has its own order; sources are
    then ordered by name.

    Args:
        order: order of the layout.
        sources: number of sources.
    """
    columns = ORDER_COLUMNS[order]
    if sources == 1:
        return columns
    return (*columns[:-2], SOURCE, *columns[-2:])


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """A point in the log to travel to; at most one field is given, none means the end.

    Attributes:
        n: number of an entry.
        lsn: the last entry whose position is not above this LSN.
        csn: all transactions with a commit sequence number up to this one, and none above. If the
            landing is ordered by CSN the point may be inside an entry. If it is ordered by LSN
            there may be no such point.
        time: the last entry before the first commit after this time; aware.
        landing_id: landing that the point was found in; empty for any.
    """

    n: int | None = None
    lsn: int | None = None
    csn: int | None = None
    time: dt.datetime | None = None
    landing_id: str = ""

    def __post_init__(self) -> None:
        given = [name for name in ("n", "lsn", "csn", "time") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ConfigError(f"a point in the log is given once, not by {' and '.join(given)}")
        if self.time is not None and self.time.tzinfo is None:
            raise ConfigError("a time to travel to needs its zone, such as 2026-01-31T12:00:00Z")

    def check_landing(self, landing_id: str, what: str) -> None:
        """Check that the point belongs to a landing.

        Args:
            landing_id: id of that landing.
            what: begins the error sentence, such as "TARGET is made from".

        Raises:
            ConfigError: the point belongs to another landing.
        """
        if self.landing_id not in ("", landing_id):
            point = f"entry {self.n}" if self.n is not None else "the point asked for"
            raise ConfigError(
                f"{what} landing {landing_id}, {point} is of landing {self.landing_id}: numbers of one mean "
                "nothing in another"
            )


class Reach(NamedTuple):
    """The part of the log up to a point: whole entries, and perhaps part of the last one.

    Attributes:
        n: number of the last entry that is included, whole or in part.
        csn: only transactions of that entry up to this CSN are included; None for all of it.
    """

    n: int
    csn: int | None = None

    @property
    def whole(self) -> int:
        """Number of the last entry that is included whole."""
        return self.n if self.csn is None else self.n - 1


class Landing(Log):
    """The landing below a root.

    Attributes:
        landing_id: id given when the landing was created.
        order: columns that order the changes.
        sources: names of its sources.
        hides_truncate: its stream has no TRUNCATE and no DDL (GaussDB's parallel decoding).
    """

    def __init__(self, root: Given) -> None:
        """Open a landing.

        Raises:
            ConfigError: there is no landing.
            LandingError: the landing is damaged or newer than this program.
        """
        super().__init__(place_of(root))
        try:
            record = json.loads((self.root / "layout.json").read_bytes())
        except FileNotFoundError:
            raise ConfigError(f"{self.root} is no landing: it has no layout.json") from None
        except (OSError, ValueError) as error:
            raise LandingError(f"{self.root}/layout.json cannot be read: {error}") from error
        self.landing_id, self.order, self.sources = _check_layout(self.root, record)
        self.hides_truncate = _HIDES_TRUNCATE in record["capabilities"]

    @property
    def source_order(self) -> tuple[str, ...]:
        """Columns that order the changes of each source."""
        return tuple(name for name in self.order if name != SOURCE)

    @property
    def has_several(self) -> bool:
        """Whether the landing has several sources."""
        return len(self.sources) > 1

    def position(self, entry: CommitEntry, source: str | None = None) -> SourcePosition:
        """Position up to which a source is complete, as of an entry.

        Args:
            entry: entry of the log.
            source: name of the source. None for the only one, or for the common position of
                several: the newest epoch, the CSN, and an LSN of 0.
        """
        if source is not None or not self.has_several:
            return entry.positions[source or self.sources[0]]
        epoch = max(position.epoch for position in entry.positions.values())
        has_csn = all(position.csn is not None for position in entry.positions.values())
        return SourcePosition(epoch, 0, 0, self.watermark(entry) if has_csn else None)

    def refuse_several(self, what: str) -> None:
        """Refuse an operation that makes sense for one source only.

        Raises:
            ConfigError: the landing has several sources.
        """
        if self.has_several:
            raise ConfigError(
                f"{self.root} is of several sources ({', '.join(self.sources)}), and {what} is of one: ask "
                f"by {'CSN, ' if self.is_by_csn else ''}entry or time"
            )

    # --- travelling ------------------------------------------------------------------------

    @property
    def is_by_csn(self) -> bool:
        """Whether transactions land in the order of their CSNs."""
        return "gd_csn" in self.order

    def watermark(self, entry: CommitEntry) -> int:
        """CSN up to which everything has landed as of an entry, and nothing above it; 0 for nothing."""
        return min(position.csn or 0 for position in entry.positions.values())

    def reach(self, point: Point) -> Reach:
        """Find the part of the log up to a point; if CSNs are the order it may end inside an entry.

        Raises:
            ConfigError: the point is after the end of the log, before its beginning, or no entry
                ends exactly there.
        """
        point.check_landing(self.landing_id, f"{self.root} holds")
        if point.csn is None or not self.is_by_csn or self.last_n < 0:
            return Reach(self.resolve(point))
        return self._reach_of(point.csn, self.first_n, self.last_n)

    def _reach_of(self, csn: int, first: int, last: int) -> Reach:
        newest = self.watermark(self.entry(last))
        if csn > newest:
            raise ConfigError(
                f"{self.root}: everything up to CSN {newest} has landed, what is up to CSN {csn} is not "
                f"known yet; ask for {newest} at most, or again when more has landed"
            )
        n = self.last_until(lambda entry: self.watermark(entry) > csn, first, last)
        held = None if n == last else self.entry(n + 1).csns
        if held is not None and held.least <= csn:
            return Reach(n + 1, csn)
        if n < first:
            raise self._beyond(n, first, last)
        return Reach(n)

    def resolve(self, point: Point) -> int:
        """Find the entry that a point means.

        Raises:
            ConfigError: the point is after the end of the log, before its beginning, or no entry
                ends exactly there.
        """
        point.check_landing(self.landing_id, f"{self.root} holds")
        if point.csn is not None and self.is_by_csn and self.last_n >= 0:
            found = self.reach(point)
            if found.csn is not None:
                raise ConfigError(
                    f"{self.root}: CSN {point.csn} is inside entry {found.n}, and only whole entries can be "
                    f"shown here; ask for entry {found.whole} or {found.n} (--n, or Point(n=...))"
                )
            return found.n
        return self._resolve(point)

    def _resolve(self, point: Point) -> int:
        first, last = self.first_n, self.last_n
        if last < 0:
            raise ConfigError(f"{self.root}: the log is empty")
        if point.n is not None:
            found = point.n
        elif point.lsn is not None:
            self.refuse_several("an LSN")
            found = self._last_not_above(point.lsn, first, last)
        elif point.csn is not None:
            found = self._at_csn(point.csn, first, last)
        elif point.time is not None:
            found = self._before_time(point.time, first, last)
        else:
            found = last
        if not first <= found <= last:
            raise self._beyond(found, first, last)
        return found

    def _beyond(self, found: int, first: int, last: int) -> ConfigError:
        return ConfigError(
            f"{self.root}: the log holds entries {first} to {last}, the point asked for is "
            f"{'before' if found < first else 'after'} them"
        )

    def _last_not_above(self, wanted: int, first: int, last: int) -> int:
        """The last entry whose position is not above an LSN."""
        return self.last_until(lambda entry: self.position(entry).lsn > wanted, first, last)

    def last_until(self, is_above: Callable[[CommitEntry], bool], first: int, last: int) -> int:
        """The last entry that is not above something, in the newest epoch that has one; `first` - 1 for none."""

        def above(n: int) -> bool:
            return is_above(self.entry(n))

        newest = self.position(self.entry(last)).epoch
        start = first + bisect.bisect_left(
            range(first, last + 1), newest, key=lambda n: self.position(self.entry(n)).epoch
        )
        if start > first and above(start):  # before the newest epoch: positions repeat there
            low = [n for n in range(first, start) if not above(n)]
            return max(low, default=first - 1)
        return start + bisect.bisect_left(range(start, last + 1), True, key=above) - 1

    def _at_csn(self, csn: int, first: int, last: int) -> int:
        """The entry at whose end exactly the transactions up to a CSN have landed."""
        found: list[Csns | None] = []
        early: list[tuple[int, int, int]] = []  # snapshots that are ahead: index, epoch, LSN
        for entry in self.entries(first, last):
            of = entry.csns
            found.append(of)
            if of is not None:  # a snapshot has these already, perhaps
                for index, _, _ in early:
                    found[index] = of.joined(found[index])
            where = self.position(entry)
            of_rows = entry.extra.get("snapshot")
            if of_rows is not None:
                early.append((entry.n - first, of_rows["epoch"], of_rows["lsn"]))
            early = [one for one in early if one[1:] > (where.epoch, where.lsn)]
        if not any(found):
            other = "entry" if self.has_several else "LSN"
            raise ConfigError(
                f"{self.root}: its entries {first} to {last} have no CSN; ask by {other}"
            )
        cut = cut_at(csn, first, found)
        if cut.n is None:
            raise ConfigError(f"{self.root}: {_no_cut(csn, cut)}")
        return cut.n

    def _before_time(self, time: dt.datetime, first: int, last: int) -> int:
        for entry in self.entries(first, last):
            if entry.commit_time is not None and entry.commit_time > time:
                return entry.n - 1
        return last

    # --- schemas ---------------------------------------------------------------------------

    def schema_record(self, table: str, schema_id: str) -> Json:
        """Content of a schema file; with several sources it notes that rows name their source.

        Raises:
            LandingError: the file cannot be read, or does not name its source though there are
                several.
        """
        record = _schema_record(self.root, table, schema_id)
        if not self.has_several:
            return record
        if record.get("source") not in self.sources:
            raise LandingError(
                f"{self.root}: version {schema_id} of {table} does not say which source it is of: this "
                "landing of several sources was begun by an earlier version, which did not tell their columns "
                "apart. Land into a new root"
            )
        return {**record, "has_source": True}

    def find_schema(self, table: str, schema_id: str, others: Iterable[str] = ()) -> Json:
        """Content of a schema file of a table that may have other directories too, as it was renamed.

        Raises:
            LandingError: there is none, or it cannot be read.
        """
        for name in (table, *others, *self.tables().values()):
            if schema_id in self.schema_ids(name):
                return self.schema_record(name, schema_id)
        return self.schema_record(table, schema_id)

    def tables(self) -> dict[str, str]:
        """Directories of tables that have schemas, by ``schema.name`` as on the server."""
        found: dict[str, str] = {}
        for name in directories_in(self.root / "schemas"):
            if name.startswith(("gd_", ".")):
                continue
            for schema_id in self.schema_ids(name)[:1]:
                record = self.schema_record(name, schema_id)
                found[table_title(record["schema"], record["name"])] = name
        return found

    def schema_ids(self, table: str) -> list[str]:
        """All versions of a table that ever landed, in no particular order."""
        names = names_in(self.root / "schemas" / table)
        return [name.removesuffix(".json") for name in names if _SCHEMA.fullmatch(name)]

    def find_table(self, name: str) -> str:
        """Directory of a table, by that name or by ``schema.name``.

        Raises:
            ConfigError: there is no such table.
        """
        if (self.root / "schemas" / name).is_dir() and "/" not in name and name not in {".", ".."}:
            return name
        tables = self.tables()
        if name not in tables:
            known = ", ".join(sorted(tables)[:10]) or "none yet"
            raise ConfigError(f"{self.root} has no table {name!r}; it has: {known}")
        return tables[name]


def when_landed(
    root: Given, lsn: int, seconds: float, nudge: Callable[[], object] = lambda: None
) -> Landing:
    """Wait until everything up to a position has landed.

    Args:
        root: root of the landing.
        lsn: position to wait for.
        seconds: longest wait.
        nudge: called every second, so that a quiet server reports its position.

    Raises:
        LandingError: it took longer.
    """
    begun = nudged = time.monotonic()
    landing = Landing(root)
    landing.refuse_several("a position")
    while landing.position(landing.entry(landing.last_n)).lsn < lsn:
        now = time.monotonic()
        if now - nudged > _NUDGE_SECONDS:
            nudge()
            nudged = now
        if now - begun > seconds:
            raise LandingError(
                f"{root} did not reach {Lsn(lsn)} in {seconds:.0f} s; is its daemon running? "
                "See gaussdecode status, or wait longer with --wait"
            )
        time.sleep(_POLL_SECONDS)
    return landing


def _no_cut(csn: int, cut: Cut) -> str:
    """Explain why a CSN is no point of the log, and which points are near."""
    why = (
        f"CSN {csn} is no point of this log, whose transactions stand in the order of their commit "
        f"records: no entry has all transactions up to CSN {csn} and none above"
    )
    told = [why]
    if cut.held_below is None:
        told.append("the first entry that has any has some above")
    else:
        told.append(
            f"entry {cut.below} has none above, and not all up to it: up to there are {cut.held_below}"
        )
    told.append(
        f"entry {cut.complete} has all up to it, and some above: up to there are {cut.held_complete}"
    )
    return f"{'; '.join(told)}. Ask for one of these entries (--n, or Point(n=...)), or for an LSN"


def data_kinds(entry: CommitEntry) -> bool:
    """Whether the files of an entry are changes that no other entry has."""
    return entry.kind is not EntryKind.COMPACT


def _check_layout(root: Place, record: Json) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    try:
        if _MIRRORED in record["capabilities"]:
            raise ConfigError(
                f"{root} holds the newest files only, the others are in its mirror alone "
                "(landing.mirror.local-retention): give the URL of the mirror in place of this directory, or "
                "leave that setting out"
            )
        check_version(record, _LAYOUT_VERSION)
        unknown = set(record["capabilities"]) - _CAPABILITIES
        if unknown:
            raise ValueError(f"it needs {', '.join(sorted(unknown))}")
        sources = tuple(sorted(map(str, record["sources"])))
        if not sources or (len(sources) > 1) != (_SEVERAL in record["capabilities"]):
            raise ValueError(f"it names {len(sources)} sources")
        return str(record["landing_id"]), order_columns(record["order"], len(sources)), sources
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(f"{root}/layout.json", NewerFormatError(error), "") from error


@functools.lru_cache(maxsize=4096)
def _schema_record(root: Place, table: str, schema_id: str) -> Json:
    path = root / "schemas" / table / f"{schema_id}.json"
    try:
        record: Json = json.loads(path.read_bytes())
        check_version(record, 1)
    except (OSError, ValueError) as error:
        raise unreadable(path, error, "restore it from a copy") from error
    return record
