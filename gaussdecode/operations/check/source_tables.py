"""Check, from the sources' catalogues, whether tables with the same name can be one table.

`spark.log.source_schemas` checks the same on landed schemas at each apply. Found here, before any row
lands, a difference is still cheap to repair.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from gaussdecode.model.title import table_title
from gaussdecode.operations.check.doctor import NAMED_TABLES, Finding
from gaussdecode.operations.check.plan import Plan
from gaussdecode.settings.sections import Config
from gaussdecode.settings.source_sections import table_pairs
from gaussdecode.source.coverage import listing
from gaussdecode.source.relations import WhiteList
from gaussdecode.spark.log.schema import Column, TableSchema
from gaussdecode.spark.log.source_schemas import DiffersError, joined

Versions = dict[str, TableSchema]
_WHY: Final = "it lands anyway, and spark apply stops the table where the difference has landed"


def differing_tables(config: Config, plans: Mapping[str, Plan]) -> Iterator[Finding]:
    """Name tables that cannot be one table, and columns that some sources lack.

    Args:
        config: configuration of all sources.
        plans: plan of each source that answered, by name.
    """
    lacking: list[str] = []
    for title, versions in sorted(_tables(config, plans).items()):
        try:
            joined(versions)
        except DiffersError as error:
            yield Finding(f"{title}: {error}", _WHY, "make them alike before the first row lands")
        lacking += _lacking(title, versions)
    if lacking:
        yield Finding(
            f"columns are not on all sources: {listing(lacking[:NAMED_TABLES], len(lacking))}",
            "they are NULL in rows of the sources that lack them",
            "add them there, or accept that",
        )


def _tables(config: Config, plans: Mapping[str, Plan]) -> dict[str, Versions]:
    """Schemas of each source by title, without tables that only the first source delivers."""
    listed = table_pairs(config.landing.replicated_tables)
    replicated = WhiteList(listed) if listed else None
    found: dict[str, Versions] = {}
    for source, plan in plans.items():
        for table in plan.tables:
            if replicated is not None and replicated.allows(table.schema, table.name):
                continue
            title = table_title(table.schema, table.name)
            planned = [of for of in plan.columns if of.table == f"{table.schema}.{table.name}"]
            columns = tuple(
                Column(of.name, of.arrow_type, true_name=of.name, server_type=of.server_type)
                for of in planned
            )
            key = tuple(of.name for of in planned if of.is_key)
            found.setdefault(title, {})[source] = TableSchema(
                "", title, table.name, 0, key, columns, source=source
            )
    return found


def _lacking(title: str, versions: Versions) -> Iterator[str]:
    names = {name for version in versions.values() for name in version.names}
    for name in sorted(names):
        without = [source for source, version in versions.items() if name not in version.names]
        if without:
            yield f"{title}: {name} on {', '.join(without)}"
