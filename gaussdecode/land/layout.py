"""Read and write ``layout.json``, which names the source of a landing and its order.

It is written when the landing is created; later only a capability may be added. Everything else in it must
agree at every start. It is sealed.
"""

import dataclasses
import datetime as dt
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

from gaussdecode.errors import ConfigError, IdentityError, LandingError, unreadable
from gaussdecode.land.disk import Disk
from gaussdecode.land.names import DIRECTORIES, LAYOUT
from gaussdecode.model.entry import format_time, parse_time
from gaussdecode.model.landing import SourceIdentity
from gaussdecode.model.seal import (
    NewerFormatError,
    canonical_json,
    read_sealed,
    sealed,
)

VERSION: Final = 1
CAPABILITIES: Final = ("checkpoints", "compact", "retention")
"""Capabilities that entries of this landing may require of a reader and a writer."""
MIRRORED: Final = "mirrored"
"""A capability of a local landing alone: files that its log names may be only in its mirror."""
HIDES_TRUNCATE: Final = "hides-truncate"
"""Capability of readers: to know that tables may have been emptied or altered unseen."""
SEVERAL: Final = "several-sources"
"""Capability of all: to know that files and positions are of several sources."""
DDL: Final = "ddl"
"""Capability of readers: to know the system table `gd_ddl`, whose rows count as messages."""
_ORDERS: Final = frozenset({"lsn", "csn"})
_FIELDS: Final = frozenset(("version", "landing_id", "created", "order", "sources", "capabilities"))
_KNOWN: Final = frozenset({*CAPABILITIES, HIDES_TRUNCATE, MIRRORED, SEVERAL, DDL})


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Content of ``layout.json``.

    Attributes:
        landing_id: made up when the landing was created; tells copies of a root apart from
            a new landing at the same path.
        created: when.
        order: ``lsn`` or ``csn``.
        sources: sources by name, in the order of the configuration; one, or several with the capability.
        capabilities: features that a program must support to work on this landing.
    """

    landing_id: str
    created: dt.datetime
    order: str
    sources: dict[str, SourceIdentity]
    capabilities: tuple[str, ...] = CAPABILITIES

    def to_bytes(self) -> bytes:
        """Give the content of the file."""
        record = {
            "version": VERSION,
            "landing_id": self.landing_id,
            "created": format_time(self.created),
            "order": self.order,
            "sources": {k: dataclasses.asdict(v) for k, v in self.sources.items()},
            "capabilities": list(self.capabilities),
        }
        return sealed(canonical_json(record))

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Read the file.

        Raises:
            LandingError: damaged.
            ConfigError: another version of the program wrote it; the text says which is needed.
        """
        try:
            _check_version(json.loads(raw))  # before the hash, which another may make otherwise
            record = read_sealed(raw)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise LandingError(f"{LAYOUT}: {error}; restore it from a copy") from error
        try:
            if record.keys() != _FIELDS:
                raise ValueError("it has other fields than this program knows")
            if record["order"] not in _ORDERS:
                raise ValueError(f"order {record['order']!r}")
            return cls(
                landing_id=str(record["landing_id"]),
                created=parse_time(record["created"]),
                order=str(record["order"]),
                sources=_sources(record),
                capabilities=tuple(record["capabilities"]),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise unreadable(LAYOUT, NewerFormatError(str(error)), "") from error


def _sources(record: dict[str, Any]) -> dict[str, SourceIdentity]:  # Any: JSON
    sources = {
        name: SourceIdentity(**record["sources"][name]) for name in sorted(record["sources"])
    }
    if not sources or (len(sources) > 1) != (SEVERAL in record["capabilities"]):
        raise ValueError(f"it names {len(sources)} sources")
    return sources


def _check_version(record: dict[str, Any]) -> None:  # Any: JSON
    """Refuse a landing of another version, and leave it as it is.

    Raises:
        ConfigError: another program must be used, which trying again does not change.
    """
    version, unknown = record["version"], sorted(set(record["capabilities"]) - _KNOWN)
    if version != VERSION:
        raise ConfigError(
            f"{LAYOUT}: the landing has layout version {version!r}, this program reads and writes "
            f"version {VERSION}; use the program that made it, or a new landing.root"
        )
    if unknown:
        raise ConfigError(f"{LAYOUT}: it needs {', '.join(unknown)}: use a newer program")


def read_layout(disk: Disk) -> Layout | None:
    """Read the layout; None where no landing was created yet."""
    raw = disk.read(LAYOUT)
    return None if raw is None else Layout.from_bytes(raw)


def create_layout(disk: Disk, layout: Layout) -> None:
    """Make the directories, then the file that says they are a landing."""
    for directory in DIRECTORIES:
        disk.ensure_directory(directory)
    disk.sync_directories("")
    hidden = disk.unfinished("", 0, "json")
    disk.write_file(hidden, layout.to_bytes())
    disk.rename(hidden, LAYOUT)
    disk.sync_directories("")


def with_capability(disk: Disk, layout: Layout, capability: str) -> Layout:
    """Add a capability to the layout of a landing, if it is not there yet."""
    if capability in layout.capabilities:
        return layout
    layout = dataclasses.replace(layout, capabilities=(*layout.capabilities, capability))
    hidden = disk.unfinished("", 0, "json")
    disk.write_file(hidden, layout.to_bytes())
    disk.replace(hidden, LAYOUT)
    disk.sync_directories("")
    return layout


def check_sources(layout: Layout, names: Iterable[str]) -> None:
    """Refuse a landing of other sources than the configuration names.

    Raises:
        IdentityError: one is missing, or too many.
    """
    given = sorted(set(names))
    kept = sorted(layout.sources)
    if given == kept:
        return
    spelled = ", ".join(map(repr, kept))
    if len(given) == len(kept) == 1:
        raise IdentityError(
            f"the landing is of slot {spelled}, not {given[0]!r}. Correct the slot, or land into a new "
            "root"
        )
    raise IdentityError(
        f"the landing is of {_spell_sources(kept)}, the configuration of {_spell_sources(given)}. "
        "A landing is complete for its own sources only. Correct the configuration. If a data "
        "node was added or removed, land into a new root"
    )


def _spell_sources(names: Sequence[str]) -> str:
    what = "slot" if len(names) == 1 else "the sources"
    return f"{what} {', '.join(map(repr, names))}"


def check_layout(layout: Layout, source: str, identity: SourceIdentity, order: str) -> None:
    """Refuse a landing that belongs to another source, and say what differs.

    Args:
        layout: layout of the landing.
        source: name of a source of it.
        identity: identity of the source now.
        order: order in which it would land.

    Raises:
        IdentityError: it does not belong together.
    """
    if source not in layout.sources:
        check_sources(layout, [source])
    kept = layout.sources[source]
    differences = [
        f"{field.replace('_', ' ')} {getattr(kept, field)!r} in the landing, "
        f"{getattr(identity, field)!r} now"
        for field in SourceIdentity.__slots__
        if getattr(kept, field) != getattr(identity, field)
    ]
    if layout.order != order:
        differences.append(f"order {layout.order!r} in the landing, {order!r} now")
    if differences:
        which = f" than what is at {source!r} now" if len(layout.sources) > 1 else ""
        raise IdentityError(
            f"the landing belongs to another source{which}: {'; '.join(differences)}. Point the "
            "configuration at the right server and slot, or land into a new root"
        )
