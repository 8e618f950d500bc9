"""Plan a table of several sources: each source alone, as long as they are one table."""

import dataclasses
from collections.abc import Mapping

from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.log.source_schemas import DiffersError, joined
from gaussdecode.spark.merge.plan import TablePlan
from gaussdecode.spark.merge.table_plan import TableChanges, plan_table
from gaussdecode.spark.target.decided import Stop


def plan_sources(changes: TableChanges) -> TablePlan:
    """Plan each source, and stop all of them where the first one stops."""
    parts = _plan_parts(changes)
    stops = [
        dataclasses.replace(part.stop, why=f"source {source}: {part.stop.why}")
        for source, part in parts.items()
        if part.stop is not None
    ]
    stop = min(stops, key=lambda stop: stop.n, default=None)
    if stop is not None:
        parts = _plan_parts(changes.until(stop.n))
    schema, apart = _follow(parts, changes.state.schema)
    if apart is not None:
        stop = apart
        parts = _plan_parts(changes.until(stop.n))
    end = changes.to if stop is None else stop.n
    return TablePlan(changes.table, end, [], None, stop, parts=parts, schema=schema)


def _plan_parts(changes: TableChanges) -> dict[str, TablePlan]:
    return {source: plan_table(changes.of(source)) for source in changes.landing.sources}


def _follow(
    parts: Mapping[str, TablePlan], before: TableSchema | None
) -> tuple[TableSchema | None, Stop | None]:
    """Join the versions of all sources from entry to entry.

    Returns:
        The last joint schema; and the stop at which they had no joint schema any more, unless they have
        one at the end.
    """
    versions = {} if before is None else {str(part.source): part for part in before.parts}
    schema, stop = before, None
    for n, changed in sorted(_changes_of(parts, versions).items()):
        versions |= changed
        try:
            schema, stop = joined(versions, schema), None
        except DiffersError as error:
            new = next(iter(changed.values())).schema_id
            stop = Stop(n - 1 if stop is None else stop.n, "", new, str(error))
    return schema, stop


def _changes_of(
    parts: Mapping[str, TablePlan], versions: Mapping[str, TableSchema]
) -> dict[int, dict[str, TableSchema]]:
    """Schema versions that begin at each entry, by source."""
    found: dict[int, dict[str, TableSchema]] = {}
    for source, part in parts.items():
        held = versions.get(source)
        for era in part.eras:
            for change in era.files:
                schema = era.schemas[change.file.schema_id]
                if held is None or held.schema_id != schema.schema_id:
                    found.setdefault(change.n, {})[source] = schema
                held = schema
    return found
