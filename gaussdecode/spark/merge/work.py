"""A table on its way from one version to the next."""

import dataclasses
from collections.abc import Sequence
from typing import Final

from gaussdecode.spark.log.change_file import ChangeFile
from gaussdecode.spark.log.schema import TableSchema
from gaussdecode.spark.merge.plan import Era
from gaussdecode.spark.merge.sizing import Sizes
from gaussdecode.spark.target.state_file import PartVersion, StateFile, TableVersion

_PART_OF_KEYS: Final = 16
"""With deletion vectors few changes read columns of the key alone: about a sixteenth of a file."""


@dataclasses.dataclass(slots=True)
class Work:
    """One table on its way from entry `after` to a new version, at entry `to`.

    With several sources there is one for each source with changes, and at the end one for the
    table, with `parts`. DDL commands set `comments`, by attribute number, None for the table.
    """

    table: str
    after: int
    to: int
    version: TableVersion | None
    schema: TableSchema | None
    eras: list[Era]
    passed: list[ChangeFile]
    ignore_through: tuple[int, ...] | None
    current: list[StateFile]
    closed: list[StateFile] = dataclasses.field(default_factory=list)
    changelog: list[StateFile] = dataclasses.field(default_factory=list)
    quarantine: tuple[StateFile, ...] = ()
    history_from: int | None = None
    buckets: int = 1
    partition: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    unmatched: int = 0
    source: str | None = None
    parts: dict[str, PartVersion] = dataclasses.field(default_factory=dict)
    comments: dict[int | None, str] = dataclasses.field(default_factory=dict)


def portions(files: Sequence[ChangeFile], size: int) -> list[tuple[ChangeFile, ...]]:
    """Cut a list of files into tasks of about one size; large files by row groups."""
    pieces = [
        (dataclasses.replace(change, part=(part, parts)), change.file.bytes // parts)
        for change in files
        for parts in [max(1, -(-change.file.bytes // size))]
        for part in range(parts)
    ]
    found: list[list[ChangeFile]] = []
    held = size
    for piece, weight in pieces:
        if held + weight > size:
            found.append([])
            held = 0
        found[-1].append(piece)
        held += weight
    return [tuple(portion) for portion in found]


def landed_bytes(era: Era) -> int:
    """Bytes of the changes of an era."""
    return sum(change.file.bytes for change in era.files)


def part_read(reads_keys: bool, landed: int, held: int, sizes: Sizes) -> int:
    """Divisor of the stored bytes that a merge reads, if few changes make it read keys alone."""
    return _PART_OF_KEYS if reads_keys and landed <= sizes.share * held else 1
