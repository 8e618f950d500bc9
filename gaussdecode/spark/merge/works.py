"""Make the `Work` of a table: one for each of its sources, joined again before the commit."""

import dataclasses
from collections.abc import Sequence

from gaussdecode.errors import ConfigError
from gaussdecode.spark.log.ddl_schema import record_of as record_of_one
from gaussdecode.spark.log.source_schemas import record_of
from gaussdecode.spark.merge.context import Context
from gaussdecode.spark.merge.plan import Applied, Era, Plan, TablePlan
from gaussdecode.spark.merge.sizing import power_of_two
from gaussdecode.spark.merge.work import Work, landed_bytes
from gaussdecode.spark.target.layout import Layout
from gaussdecode.spark.target.state_file import PartVersion


def together(context: Context, works: Sequence[Work], plan: Plan) -> Work:
    """Join the versions of several sources, also of those without changes, into one table."""
    first = works[0]
    schema = plan.tables[first.table].schema
    if schema is None:
        return first
    context.store.keep_schema(first.table, schema.schema_id, record_of(schema))
    current, parts = {}, {}
    if first.version is not None:
        current = context.store.by_source(first.table, first.version.current)
        parts = dict(first.version.parts)
    for work in works:
        current[work.source] = work.current
        parts[str(work.source)] = PartVersion(work.buckets, work.ignore_through)
    return dataclasses.replace(
        first,
        schema=schema,
        source=None,
        current=[file for files in current.values() for file in files],
        closed=[file for work in works for file in work.closed],
        changelog=[file for work in works for file in work.changelog],
        buckets=max(part.buckets for part in parts.values()),
        unmatched=sum(work.unmatched for work in works),
        parts=parts,
    )


def works_of(
    context: Context, planned: TablePlan, state: Applied, layout: Layout | None
) -> list[Work]:
    """One `Work` for each source with changes; for each source if rows are in quarantine."""
    works = [_work(context, planned, state, layout, source) for source in planned.changed]
    if not works or planned.schema is None:
        return works
    first = works[0]
    if first.version is None or not first.version.quarantine:
        return works
    version, there = first.version, {work.source for work in works}
    for schema in planned.schema.parts:
        if schema.source not in there and schema.source in version.parts:
            of = version.parts[schema.source]
            works.append(
                dataclasses.replace(
                    first,
                    source=schema.source,
                    schema=schema,
                    eras=[Era(schema, {schema.schema_id: schema}, [], [])],
                    passed=[],
                    ignore_through=of.ignore_through,
                    current=context.store.files_of(first.table, version.current, schema.source),
                    buckets=of.buckets,
                    closed=[],
                    changelog=[],
                )
            )
    return works


def _work(
    context: Context, whole: TablePlan, state: Applied, layout: Layout | None, source: str | None
) -> Work:
    table, planned = whole.table, whole.changed[source]
    version = context.store.newest(table)
    state = state if source is None else state.of(source)
    ids = {schema_id for era in planned.eras for schema_id in era.schemas}
    # The changelog has files too that a snapshot goes over, maybe of a version of their own.
    names = {file.schema_id: file.table for file in planned.landed}
    for schema_id in ids | names.keys():
        made, name = planned.made.get(schema_id), names.get(schema_id, table)
        record = record_of_one(made) if made else context.landing.schema_record(name, schema_id)
        context.store.keep_schema(table, schema_id, record)
    work = Work(
        table,
        state.n,
        planned.to,
        version,
        state.schema,
        planned.eras,
        planned.passed,
        planned.ignore_through,
        [] if version is None else context.store.files_of(table, version.current, source),
        source=source,
        comments=dict(comment for _, comment in planned.comments),
    )
    landed = sum(map(landed_bytes, planned.eras))
    context.summary.bytes_read += landed
    context.summary.rows += sum(c.file.rows for era in planned.eras for c in era.files)
    _choose_layout(work, layout)
    held = None if version is None else version.buckets_of(source)
    if held is None:
        wanted = power_of_two(landed / context.options.sizes.first_bucket)
        work.buckets = context.options.buckets or wanted
    else:
        work.buckets = held
    return work


def _choose_layout(work: Work, wanted: Layout | None) -> None:
    """Give a table the wanted layout, or the one that it has.

    Raises:
        ConfigError: it has another layout, or cannot have this one.
    """
    version = work.version
    if version is not None:
        work.partition, work.cluster = version.partition, version.cluster
    if wanted is None:
        return
    schema = work.eras[-1].schema if work.eras else work.schema
    title = work.table if schema is None else schema.title
    if version is not None:
        if (wanted.partition, wanted.cluster) != (version.partition, version.cluster):
            raise ConfigError(
                f"{title} was made with another layout, which it keeps: leave out --partition-by "
                "and --cluster-by for it, or begin a new target"
            )
        return
    if work.source is not None:
        raise ConfigError(
            f"{title} is of several sources, whose columns may differ: such a table has no layout"
        )
    if schema is not None:
        wanted.check(title, {c.name: c.type for c in schema.columns})
    work.partition, work.cluster = wanted.partition, wanted.cluster
