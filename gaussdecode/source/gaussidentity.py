"""Which old columns GaussDB sends of a table: judged from old tuples and the catalogue.

An old tuple shows the replica identity that was in force when the WAL was written; the
catalogue says what is declared now, which may be newer. Where they differ the tuple is
right. A DELETE without an old tuple shows that there is none; an UPDATE without shows
nothing, because servers before 3.0 left an unchanged key out.

**Gaps.** Fewer columns than before are a new identity. But servers 3.0.0, 3.0.1 and 3.1, and
old serial plug-ins, leave NULLs out of old tuples, so that under REPLICA IDENTITY FULL they can
also be a full tuple with gaps. They are one for certain if the key and more is there, or if the
table has no key; else they are taken for a new identity, until a table has gone back to a full
one `MAX_FLIPS` times: then they are gaps, too.
"""

import dataclasses
from typing import Final

from gaussdecode.model.relation import ReplicaIdentity
from gaussdecode.model.shape import Shape
from gaussdecode.source.catalog import CatalogTable

MAX_FLIPS: Final = 3  # arbitrary


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
    shape: Shape, names: frozenset[str], before: Identity | None, catalog: CatalogTable | None
) -> Identity:
    """Say which old columns are sent: what was seen, else what is declared.

    Args:
        shape: of the row at hand.
        names: all columns of the table.
        before: what was in force until now, or None.
        catalog: what is declared now, or None.
    """
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
    # Only ustore sends old rows of a table that has no key, and then whole ones.
    is_keyless = catalog is not None and declared.letter is ReplicaIdentity.DEFAULT and not key
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
