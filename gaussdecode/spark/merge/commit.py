"""Commit the versions of tables, and then the version of the database."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from gaussdecode.model.title import split_title, table_directory
from gaussdecode.model.words import counted
from gaussdecode.spark.catalogs.announce import announce
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.merge.context import Context
from gaussdecode.spark.merge.engine import SparkEngine
from gaussdecode.spark.merge.plan import Applied, Plan
from gaussdecode.spark.merge.stops import Stops
from gaussdecode.spark.merge.work import Work
from gaussdecode.spark.target.comments import Changed
from gaussdecode.spark.target.database_version import DatabaseVersion
from gaussdecode.spark.target.layout import comment
from gaussdecode.spark.target.state_file import TableVersion
from gaussdecode.spark.target.store import utc_now


def commit_table(context: Context, work: Work, plan: Plan, part: int) -> None:
    """Commit the new version of a table.

    Args:
        context: the apply.
        work: the table.
        plan: its plan.
        part: CSN up to which the table includes the next entry.

    Raises:
        MirrorError: no answer came, so that the store may have the version.
    """
    before = work.version
    assert work.schema is not None
    changelog_by = context.changelog_by(before)
    n_before = -1 if before is None else before.n
    version = TableVersion(
        v=0 if before is None else before.v + 1,
        n=work.to,
        schema_id=work.schema.schema_id,
        buckets=work.buckets,
        current=tuple(sorted(work.current, key=lambda file: file.bucket)),
        closed=tuple(work.closed),
        changelog=tuple(work.changelog),
        quarantine=work.quarantine,
        history_from=_since(before, "history_from", n_before, context.has_history(before)),
        changelog_from=_since(before, "changelog_from", n_before, bool(changelog_by)),
        changelog_by=changelog_by,
        ignore_through=work.ignore_through,
        accepted_gaps=_joined(before, "accepted_gaps", plan.accepted_gaps),
        unmatched=work.unmatched + (0 if before is None else before.unmatched),
        created=utc_now(),
        part=part,
        partition=work.partition,
        cluster=work.cluster,
        parts=work.parts,
    )
    context.store.commit_table(
        work.table,
        version,
        comment=comment(work.schema, context.landing),
        with_vectors=context.with_vectors,
        said=_said(work),
    )
    context.summary.tables += 1
    rows = counted(version.rows, "row")
    name = "" if _is_own_name(work.schema, work.table) else f" ({work.schema.title} now)"
    context.progress(f"{work.table}{name}: version {version.v} at entry {version.n}, {rows}")


def _is_own_name(schema: TableSchema, table: str) -> bool:
    """Whether a table is in the directory of its name."""
    return table_directory(*split_title(schema.title)) == table


def _renamed(context: Context, plan: Plan, tables: Mapping[str, int]) -> dict[str, str]:
    """`DatabaseVersion.renamed` of the next version; a dropped table whose name another one got is none."""
    before = context.before
    found = {} if before is None else dict(before.renamed)
    for table, v in tables.items():  # an apply that was killed may have made some of these versions
        if before is None or before.tables.get(table) != v:
            found.pop(table, None)
            schema = context.store.schema(table, context.store.version(table, v).schema_id)
            if not _is_own_name(schema, table):
                found[table] = schema.title
    names = {table: table_directory(*split_title(title)) for table, title in found.items()}
    return {
        table: found[table] for table, name in names.items() if plan.names.get(name, table) == table
    }


def _said(work: Work) -> Changed:
    """The comments that DDL commands set, by the names of the columns."""
    assert work.schema is not None
    comments = dict(work.comments)
    table = comments.pop(None, None)
    names = {column.number: column.name for column in work.schema.columns}
    columns = {names[number]: text for number, text in comments.items() if number in names}
    return Changed(table, columns)


def part_of(work: Work, plan: Plan, stops: Stops) -> int:
    """CSN up to which a table includes the next entry."""
    if work.table not in stops.now:
        return plan.part or 0
    before = work.version
    return 0 if before is None or before.n != work.to else before.part


def commit_database(
    context: Context,
    plan: Plan,
    applied: Mapping[str, Applied],
    only: Collection[str] | None,
    stops: Stops,
) -> None:
    """Commit one version of all tables, once all of them are there."""
    before, summary = context.before, context.summary
    behind = [
        name
        for name, state in applied.items()
        if only is not None and name not in only and state.n < plan.to and name not in stops.now
    ]
    if behind:
        summary.n = summary.from_n
        context.progress(
            f"the database stays at entry {summary.n}: {len(behind)} tables are behind"
        )
        return
    if (newer := ahead(plan, applied, is_by_csn=context.landing.is_by_csn)) is not None:
        summary.n = summary.from_n
        context.progress(
            f"the database stays at entry {summary.n}: {newer} was loaded at a position that "
            f"entry {plan.to} does not reach; apply again when more has landed"
        )
        return
    time = plan.commit_time.isoformat() if plan.commit_time is not None else None
    epoch, lsn, csn = plan.position or (0, 0, None)
    tables = _versions(context, sorted({*applied, *plan.tables}))
    version = DatabaseVersion(
        k=1 if before is None else before.k + 1,
        n=plan.to,
        tables=tables,
        is_complete=only is None,
        epoch=epoch,
        lsn=lsn,
        csn=csn,
        commit_time=time if time is not None or before is None else before.commit_time,
        accepted_gaps=_joined(before, "accepted_gaps", plan.accepted_gaps),
        suspects=_joined(before, "suspects", plan.suspects),
        quarantined=plan.quarantined,
        withheld=sorted(plan.withheld),
        known={of: known for of, known in plan.known.items() if of not in plan.read_since},
        history=context.has_history(None),
        changelog=context.changelog_by(None),
        vectors=context.with_vectors,
        stopped={table: dataclasses.asdict(stop) for table, stop in stops.now.items()},
        created=utc_now(),
        part=plan.part or 0,
        hash=context.landing.hash_at(plan.to),
        renamed=_renamed(context, plan, tables),
    )
    session = context.engine.session if isinstance(context.engine, SparkEngine) else None
    announce(context.store, version, before, session, context.progress)
    context.store.commit_database(version)
    summary.n, summary.part = plan.to, version.part


def _versions(context: Context, tables: Collection[str]) -> dict[str, int]:
    """Number of the newest version of each table that has one."""
    newest = {name: context.store.newest(name) for name in tables}
    return {name: version.v for name, version in newest.items() if version is not None}


def _since(version: TableVersion | None, field: str, n_before: int, is_wanted: bool) -> int | None:
    """Entry after which a product is kept: as before, or from now on."""
    if version is not None and getattr(version, field) is not None:
        return int(getattr(version, field))
    return n_before if is_wanted else None


def ahead(plan: Plan, applied: Mapping[str, Applied], *, is_by_csn: bool = False) -> str | None:
    """A table whose rows were read at a later position than the plan reaches; None for none.

    With several sources there is none: only the daemon reads their rows, and they have an entry.
    """
    epoch, lsn, csn = plan.position or (0, 0, 0)
    to = (epoch, csn or 0) if is_by_csn else (epoch, lsn)
    loaded = ((table, state) for table, state in sorted(applied.items()) if not state.ignored)
    covered = ((table, state.ignore_through) for table, state in loaded)
    return next((table for table, until in covered if until is not None and until > to), None)


def _joined(
    version: TableVersion | DatabaseVersion | None, field: str, more: Sequence[int]
) -> tuple[int, ...]:
    return tuple(sorted({*(getattr(version, field) if version is not None else ()), *more}))
