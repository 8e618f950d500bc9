"""Which old columns GaussDB sends of a table: judged from old tuples and the catalogue.

An old tuple shows the replica identity that was in force when the WAL was written; the
catalogue says what is declared now, which may be newer. Where they differ the tuple is
right. A DELETE without an old tuple shows that there is none; an UPDATE without shows
nothing, because servers before 3.0 left an unchanged key out.

**Gaps.** Fewer columns than before are a new identity. But servers 3.0.0, 3.0.1 and 3.1, and
old serial plug-ins, leave NULLs out of old tuples, so that under REPLICA IDENTITY FULL they can
also be a full tuple with gaps. They are one where the server is known to leave NULLs out and FULL is
declared: there a tuple without any column is a row of NULLs, which JSON does not even show. Of
another server they are one for certain if the key and more is there, or if the table has no key;
else they are taken for a new identity, until a table has gone back to a full one `MAX_FLIPS` times:
then they are gaps, too.
"""

import dataclasses
import enum
from typing import Final

from gaussdecode.model.relation import ReplicaIdentity
from gaussdecode.model.shape import Shape
from gaussdecode.protocol.gaussdb.profile import omits_nulls
from gaussdecode.source.catalog import CatalogTable

MAX_FLIPS: Final = 3  # arbitrary


class Nulls(enum.Enum):
    """What becomes of NULLs in the old tuples of a stream.

    SENT: they are sent, as far as is known of the server.
    LEFT_OUT: they are left out; a tuple of NULLs alone has no column.
    HIDDEN: they are left out; a tuple of NULLs alone looks like none.
    """

    SENT = enum.auto()
    LEFT_OUT = enum.auto()
    HIDDEN = enum.auto()


def nulls_of(version: int, style: str) -> Nulls:
    """What becomes of NULLs in the old tuples of a version's stream.

    Args:
        version: as one number.
        style: ``b``, ``t``, ``j``, ``s`` or ``q``; the serial text of these versions is JSON.
    """
    if not omits_nulls(version):
        return Nulls.SENT
    return Nulls.HIDDEN if style in "js" else Nulls.LEFT_OUT


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """The old columns of a table.

    Attributes:
        letter: replica identity.
        names: of the columns that are sent.
        has_gaps: NULLs among them are left out.
        flips: how often the table went from a part of its columns to all of them.
    """

    letter: ReplicaIdentity
    names: frozenset[str]
    has_gaps: bool = False
    flips: int = 0


def judge(
    shape: Shape,
    names: frozenset[str],
    before: Identity | None,
    catalog: CatalogTable | None,
    nulls: Nulls = Nulls.SENT,
) -> Identity:
    """Say which old columns are sent: what was seen, else what is declared.

    Args:
        shape: of the row at hand.
        names: all columns of the table.
        before: what was in force until now, or None.
        catalog: what is declared now, or None.
        nulls: what becomes of them in old tuples.
    """
    if nulls is Nulls.SENT:
        return _seen(shape, names, before, catalog)
    if _is_whole(shape, names, before, catalog, nulls):
        found = Identity(ReplicaIdentity.FULL, names)
    else:
        found = _seen(shape, names, before, catalog)
    has_gaps = found.has_gaps or found.letter is ReplicaIdentity.FULL
    return dataclasses.replace(found, has_gaps=has_gaps)


def _is_whole(
    shape: Shape,
    names: frozenset[str],
    before: Identity | None,
    catalog: CatalogTable | None,
    nulls: Nulls,
) -> bool:
    """Whether the old columns, however few, are a whole row without its NULLs."""
    if shape.old == ():
        return True  # a key has no NULL
    if catalog is None:
        is_full = before is not None and before.letter is ReplicaIdentity.FULL
    else:
        declared = _declared(names, catalog)
        is_full = declared.letter is ReplicaIdentity.FULL
        if shape.old is not None and not is_full:
            is_full = _is_keyless(declared, catalog)
    if shape.old is None:
        return is_full and nulls is Nulls.HIDDEN and shape.op in "UD"
    return is_full


def _is_keyless(declared: Identity, catalog: CatalogTable) -> bool:
    """Whether only whole rows can be sent: only ustore sends any of a table without a key."""
    return declared.letter is ReplicaIdentity.DEFAULT and not catalog.primary_key


def _seen(
    shape: Shape, names: frozenset[str], before: Identity | None, catalog: CatalogTable | None
) -> Identity:
    """Judge by what was seen: of a server that sends NULLs, or that is not known."""
    declared = _declared(names, catalog)
    held = _held(names, before)
    gaps, flips = (False, 0) if before is None else (before.has_gaps, before.flips)
    if shape.old is None:
        if shape.op == "D":
            letter = ReplicaIdentity.NOTHING if declared.names else declared.letter
            return Identity(letter, frozenset(), flips=flips)
        kept = held if held is not None and held.names else declared
        return dataclasses.replace(kept, has_gaps=gaps, flips=flips)
    seen = frozenset(column.name for column in shape.old)
    if seen == names:
        flips += held is not None and bool(held.names) and held.names < names
        return dataclasses.replace(_whole(names, declared, held), has_gaps=gaps, flips=flips)
    was_full = held is not None and held.letter is ReplicaIdentity.FULL
    key = frozenset[str]() if catalog is None else frozenset(catalog.primary_key)
    is_keyless = catalog is not None and _is_keyless(declared, catalog)
    is_full = (
        declared.letter is ReplicaIdentity.FULL or is_keyless or (catalog is None and was_full)
    )
    is_proof = is_full and catalog is not None and (seen > key or not key)
    if gaps or is_proof or (is_full and flips >= MAX_FLIPS):
        return Identity(ReplicaIdentity.FULL, names, has_gaps=True, flips=flips)
    if seen == declared.names:
        return dataclasses.replace(declared, flips=flips)
    is_key = catalog is None or seen == key
    return Identity(ReplicaIdentity.DEFAULT if is_key else ReplicaIdentity.INDEX, seen, flips=flips)


def _whole(names: frozenset[str], declared: Identity, held: Identity | None) -> Identity:
    """Judge an old tuple of all columns: FULL, unless all of them are the key."""
    if declared.names == names:
        return declared
    if held is not None and held.names == names:
        return held
    return Identity(ReplicaIdentity.FULL, names)


def _declared(names: frozenset[str], catalog: CatalogTable | None) -> Identity:
    """Read what the catalogue says, if its columns are the table's."""
    if catalog is None:
        return Identity(ReplicaIdentity.DEFAULT, frozenset())
    letter = ReplicaIdentity(catalog.identity)
    if letter is ReplicaIdentity.FULL:
        return Identity(letter, names)
    columns = {
        ReplicaIdentity.DEFAULT: catalog.primary_key,
        ReplicaIdentity.INDEX: catalog.identity_index,
    }.get(letter, ())
    return Identity(letter, frozenset(columns) if names.issuperset(columns) else frozenset())


def _held(names: frozenset[str], before: Identity | None) -> Identity | None:
    """Carry the identity on to the columns of now; None where its columns are gone."""
    if before is None:
        return None
    if before.letter is ReplicaIdentity.FULL:
        return dataclasses.replace(before, names=names)
    return before if before.names <= names else None
