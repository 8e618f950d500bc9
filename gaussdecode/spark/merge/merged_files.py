"""Read merged files in place of the files that they replace."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gaussdecode.model.entry import CommitEntry
from gaussdecode.model.landing import Replacement
from gaussdecode.spark.log.change_file import ChangeFile, Numbering
from gaussdecode.spark.log.ddl import DdlEvent
from gaussdecode.spark.log.place import Place
from gaussdecode.spark.merge.plan import Doubt


def merge_files(
    root: Place,
    files: dict[str, list[ChangeFile]],
    compacts: list[CommitEntry],
    numbering: Numbering,
    between: Mapping[str, Sequence[Doubt | DdlEvent]] = MappingProxyType({}),
) -> dict[str, list[ChangeFile]]:
    """Replace files by merged files, if all files that these replace are wanted.

    A merged file is not used if something of `between` is in its entries.
    """
    tables = {change.file.path: table for table, found in files.items() for change in found}
    merged: dict[str, ChangeFile] = {}
    for entry in compacts:
        described = {file.path: file for file in entry.files}
        for item in entry.replaced:
            if len(of := {tables.get(path) for path in item.replaced}) != 1 or None in of:
                continue
            merged_file, table = described[item.path], tables[item.replaced[0]]
            if _is_parted(files[table], item, merged_file.schema_id, between.get(table, ())):
                continue
            if (root / item.path).is_file():
                span = tuple(x for x in numbering if item.first_n <= x[0] <= item.last_n)
                change = ChangeFile(
                    item.first_n,
                    item.last_n,
                    False,
                    merged_file,
                    span,
                    epoch=max((x[1] for x in span), default=0),
                )
                merged.update(dict.fromkeys(item.replaced, change))
    return {table: _replaced(found, merged) for table, found in files.items()}


def _is_parted(
    files: list[ChangeFile], item: Replacement, schema_id: str,
    between: Sequence[Doubt | DdlEvent],
) -> bool:  # fmt: skip
    """Whether a snapshot, a doubt, a DDL command or another schema separates two files."""
    return any(item.first_n <= of.n <= item.last_n for of in between) or any(
        item.first_n <= f.n <= item.last_n and (f.is_snapshot or f.file.schema_id != schema_id)
        for f in files
    )


def _replaced(files: list[ChangeFile], merged: dict[str, ChangeFile]) -> list[ChangeFile]:
    result: dict[str, ChangeFile] = {}
    for change in files:
        chosen = merged.get(change.file.path, change)
        result.setdefault(chosen.file.path, chosen)
    return list(result.values())
