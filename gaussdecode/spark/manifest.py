"""Versions of a table as differences, so that manifests grow with what changed.

Pure. Version *v* says what it put and took away since the version *v* without its lowest binary
one: 12 since 8, 11 since 10, 10 since 8, and 8 since nothing. To read a version takes as many
manifests as it has ones, and a file is named about as often as the number of versions has
digits. A manifest without ``since`` says everything; those of older programs do.
"""

import collections
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

Json = dict[str, Any]  # decoded JSON
KINDS: Final = ("current", "closed", "changelog")
_DEFAULTS: Final = {"bucket": -1, "partition": "", "deletes": "", "deleted": 0}
"""What is left out of a file's description."""


def ancestor(v: int, exists: Callable[[int], bool]) -> int:
    """The version whose difference to `v` is written; 0 for none."""
    before = v & (v - 1)
    while before and not exists(before):
        before &= before - 1
    return before


def difference(before: Json, after: Json) -> Json | None:
    """What is new in a version; None where saying everything is no longer or is needed.

    Args:
        before: an older version, whole.
        after: the version, whole.
    """
    changes: Json = {**after, "since": before["v"]}
    for kind in KINDS:
        old, new = _by_path(before[kind]), _by_path(after[kind])
        changes[kind] = {
            "put": [_short(file) for path, file in new.items() if old.get(path) != file],
            "gone": [path for path in old if path not in new],
        }
    if sum(len(changes[kind]["put"]) for kind in KINDS) >= sum(len(after[k]) for k in KINDS):
        return None
    return changes if combined([before, changes]) == after else None


def combined(records: Sequence[Json]) -> Json:
    """A version, whole, from manifests that follow each other, the first of them whole."""
    files = {kind: _by_path(records[0][kind]) for kind in KINDS}
    for record in records[1:]:
        for kind, held in files.items():
            for path in record[kind]["gone"]:
                del held[path]
            held.update(_by_path(record[kind]["put"]))
    found = {name: value for name, value in records[-1].items() if name != "since"}
    for kind, held in files.items():
        found[kind] = list(held.values())
    found["current"].sort(key=lambda file: file["bucket"])
    return found


def chain(v: int, manifest: Callable[[int], Json]) -> Iterator[tuple[int, Json]]:
    """Numbers and manifests that a version is read from, its own first."""
    while v:
        record = manifest(v)
        yield v, record
        v = int(record.get("since", 0))


def named_paths(records: Mapping[int, Json], alive: Collection[int]) -> set[str]:
    """All files of some versions, those with delete vectors too; reads no version whole.

    A file that a manifest puts is in as many of these versions as come of that manifest, without
    those that come of one which takes the file away or puts it with another vector.

    Args:
        records: manifests that the versions are read from, by number.
        alive: numbers of the versions.
    """
    count = collections.Counter(
        number for v in alive for number, _ in chain(v, records.__getitem__)
    )
    children: dict[int, list[int]] = {}
    for v in count:
        children.setdefault(int(records[v].get("since", 0)), []).append(v)
    found: set[str] = set()
    for first in children.get(0, ()):
        _descend(first, records, children, count, {}, found)
    return found


@dataclasses.dataclass(slots=True)
class _Held:
    """Names that a manifest puts together, and how many versions have them so."""

    names: set[str]
    versions: int


def _descend(
    v: int, records: Mapping[int, Json], children: Mapping[int, Sequence[int]],
    count: Mapping[int, int], held: dict[str, "_Held"], found: set[str],
) -> None:  # fmt: skip
    """Count in how many versions each file is that stands in a manifest or one that follows it.

    Args:
        v: of the manifest.
        records: see `named_paths`.
        children: manifests that follow one.
        count: how many of the versions are read with a manifest.
        held: by path, what it is known by, and in how many versions so; left as it was.
        found: names of files are added.
    """
    put, gone = _changes(records[v])
    before = {path: held.pop(path) for path in (*gone, *put) if path in held}
    for item in before.values():
        item.versions -= count[v]
    own = {path: _Held({path, file["deletes"] or path}, count[v]) for path, file in put.items()}
    held.update(own)
    for child in children.get(v, ()):
        _descend(child, records, children, count, held, found)
    found.update(*(item.names for item in own.values() if item.versions))
    for path in own:
        del held[path]
    held.update(before)


def _changes(record: Json) -> tuple[dict[str, Json], list[str]]:
    """Files that a manifest puts, by path, and paths it takes away."""
    if "since" not in record:
        return {p: f for kind in KINDS for p, f in _by_path(record[kind]).items()}, []
    put = {p: f for kind in KINDS for p, f in _by_path(record[kind]["put"]).items()}
    return put, [path for kind in KINDS for path in record[kind]["gone"]]


def _by_path(files: Sequence[Mapping[str, Any]]) -> dict[str, Json]:
    return {file["path"]: {**_DEFAULTS, **file} for file in files}


def _short(file: Json) -> Json:
    return {name: value for name, value in file.items() if _DEFAULTS.get(name) != value}
