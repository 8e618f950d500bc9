"""Define the tree of a landing: which kinds of file may be where below the root.

A place lists the files and directories that belong into it. Everything else is *foreign*: it is named in a
finding and left alone, whatever its name and type (a directory in the place of a file, a link, a pipe). Code
that lists a directory of the landing asks here first, so that a foreign name cannot end a start.
Given names and kinds; touches no file.
"""

import dataclasses
import enum
import re
from collections.abc import Callable, Mapping
from typing import Final

from gaussdecode.land.files import Item
from gaussdecode.land.mirror.plan import is_numbered_copy
from gaussdecode.land.names import (
    COMMITS,
    COMPACT,
    CONTROL,
    DATA,
    LAYOUT,
    LOCK,
    MIRROR,
    PREPARED,
    SCHEMAS,
    SERVE,
    SERVER,
    SPOOL,
    SYSTEM_TABLES,
    checkpoint_range,
    data_number,
    entry_number,
    hidden_entry_number,
    is_prepared_name,
    partition_date,
    unfinished_number,
)
from gaussdecode.land.snapshots import (
    CHUNK,
    COLUMNS,
    FINGERPRINTS,
    LEDGER,
    REQUEST,
    REQUESTS,
    ROOT,
    SOURCES,
    STATE,
)

Matcher = Callable[[str], object]
"""Gives a true value, or 0, for a name that belongs; None or False for any other."""

_BLOCK: Final = re.compile(r"[0-9]{20}")
_SCHEMA: Final = re.compile(r"[0-9a-f]{16}\.json")
_SPOOLED: Final = re.compile(r"\.[0-9a-z_]+\.spool")
_OLD_CHUNK: Final = re.compile(r"chunk-[0-9]{8}\.arrow")  # of versions that kept no hash
_SLOT: Final = re.compile(r"\.?[a-z0-9_]{1,63}\.json")
_LOST: Final = "lost+found"  # of file systems, at the root of one


class Kind(enum.Enum):
    """Whose something is."""

    OURS = "it belongs here"
    UNFINISHED = "nobody finished it"
    FOREIGN = "somebody else put it here"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A directory: what belongs into it.

    Attributes:
        files: tells the names of its files.
        below: places below it, by what tells their names.
        unfinished: tells names that a dead process may leave and that no entry can name.
        sockets: tells the names of its sockets.
    """

    files: tuple[Matcher, ...] = ()
    below: tuple[tuple[Matcher, "Place"], ...] = ()
    unfinished: tuple[Matcher, ...] = (unfinished_number,)
    sockets: tuple[Matcher, ...] = ()

    def kind(self, item: Item) -> Kind:
        """Say whose something in this place is."""
        if item.is_directory:
            return Kind.FOREIGN if self.step(item) is None else Kind.OURS
        if _matches(self.files if item.is_file else self.sockets, item.name):
            return Kind.OURS
        if item.is_file and _matches(self.unfinished, item.name):
            return Kind.UNFINISHED
        return Kind.FOREIGN

    def step(self, item: Item) -> "Place | None":
        """The place that a directory in this one is; None for a foreign one."""
        found = (place for matcher, place in self.below if _matches((matcher,), item.name))
        return next(found, None) if item.is_directory else None


def is_table(name: str) -> bool:
    """Whether a directory's name is one that a table, or a table of ours, can have."""
    return _TABLE.fullmatch(name) is not None or name in SYSTEM_TABLES


def is_vital(name: str) -> bool:
    """Whether a name is one that an entry, a checkpoint or the layout needs."""
    return name == LAYOUT or _matches((*_ENTRIES, checkpoint_range), name)


def _matches(matchers: tuple[Matcher, ...], name: str) -> bool:
    found = (matcher(name) for matcher in matchers)
    return any(one is not None and one is not False for one in found)


def _is(name: str) -> Matcher:
    return name.__eq__


_TABLE: Final = re.compile(r"[A-Za-z0-9_%~-]+\.[A-Za-z0-9_%~-]+")
_SOURCE: Final = re.compile(r"[A-Za-z0-9_-]+")
_ENTRIES: Final = (entry_number, hidden_entry_number)
_BEGUN: Final = (is_table, Place((_is(STATE), CHUNK.fullmatch, _OLD_CHUNK.fullmatch)))
"""Tables that are being read."""
DATA_FILES: Final = Place((data_number,))
"""A directory of Parquet files."""
_PLACES: Final[Mapping[str, Place]] = {
    COMMITS: Place(_ENTRIES, ((_is("checkpoints"), Place((checkpoint_range,))),)),
    SCHEMAS: Place((), ((is_table, Place((_SCHEMA.fullmatch,))),)),
    DATA: Place((), ((is_table, Place((), ((partition_date, DATA_FILES),))),)),
    COMPACT: Place((), ((_BLOCK.fullmatch, Place((), ((is_table, DATA_FILES),))),)),
    SPOOL: Place(unfinished=(unfinished_number, _SPOOLED.fullmatch)),
    PREPARED: Place((is_prepared_name,)),
    SERVE: Place((_is(LOCK),), ((_is("slots"), Place((_SLOT.fullmatch,))),)),
    ROOT: Place(
        (_is(LEDGER), _is(FINGERPRINTS), _is(COLUMNS), is_numbered_copy),
        (
            (_is(REQUESTS), Place((REQUEST.fullmatch,))),
            (_is(SOURCES), Place((), ((_SOURCE.fullmatch, Place((), (_BEGUN,))),))),
            _BEGUN,
        ),
    ),
}
TREE: Final = Place(
    (_is(LAYOUT), _is(LOCK), _is(MIRROR), _is(SERVER)),
    (*((_is(name), place) for name, place in _PLACES.items()), (_is(_LOST), Place())),
    sockets=(_is(CONTROL),),
)
"""The root."""


def spell(path: str) -> str:
    """Make a foreign path fit to be printed: a name may hold any byte."""
    return path.encode("utf-8", "backslashreplace").decode().encode("unicode_escape").decode()
