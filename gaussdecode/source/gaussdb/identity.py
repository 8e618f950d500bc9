"""Judge which old columns GaussDB sends of a table, from old tuples and the catalogue.

An old tuple shows the replica identity that was in force when the WAL was written; the
catalogue says what is declared now, which may be newer. Where they differ the tuple is
right. A DELETE without an old tuple shows that there is none, unless the catalogue declares one; an
UPDATE without shows nothing, because servers before 3.0 left an unchanged key out.

**Upserts.** An `INSERT ... ON DUPLICATE KEY` that another session overtakes writes its row and takes
it back. Parallel decoding, and serial decoding before 6.0.2, send that as an INSERT and a DELETE
without an old tuple, whatever the table's identity is. Where one is declared, such a DELETE says
nothing of the identity: it is *speculative*.

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
from collections.abc import Callable
from typing import Final

from gaussdecode.model.relation import ReplicaIdentity
from gaussdecode.model.shape import Shape
from gaussdecode.protocol.gaussdb.profile import omits_nulls
from gaussdecode.source.catalog import CatalogTable

MAX_FLIPS: Final = 3  # arbitrary


class Nulls(enum.Enum):
    """How NULLs appear in the old tuples of a stream.

    SENT: they are sent, as far as is known of the server.
    LEFT_OUT: they are left out; a tuple of NULLs alone has no column.
    HIDDEN: they are left out; a tuple of NULLs alone looks like none.
    """

    SENT = enum.auto()
    LEFT_OUT = enum.auto()
    HIDDEN = enum.auto()


def nulls_of(version: int, style: str) -> Nulls:
    """How NULLs appear in the old tuples of a version's stream.

    Args:
        version: version as one number.
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
        names: names of the columns that are sent.
        has_gaps: NULLs among them are left out.
        flips: how often the table went from a part of its columns to all of them.
        is_speculative: the row at hand is a DELETE that takes back what an upsert inserted.
    """

    letter: ReplicaIdentity
    names: frozenset[str]
    has_gaps: bool = False
    flips: int = 0
    is_speculative: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class _Case:
    """A row at hand with all that a rule may look at.

    Attributes:
        shape: shape of the row.
        names: all columns of the table.
        held: identity in force until now, applied to these columns; None for none.
        declared: identity declared in the catalogue.
        catalog: the table there, or None.
        nulls: how NULLs appear in old tuples.
        gaps: NULLs were left out until now.
        flips: how often the table went from a part of its columns to all of them.
    """

    shape: Shape
    names: frozenset[str]
    held: Identity | None
    declared: Identity
    catalog: CatalogTable | None
    nulls: Nulls
    gaps: bool
    flips: int

    @property
    def seen(self) -> frozenset[str]:
        """Names of the old columns."""
        return frozenset(column.name for column in self.shape.old or ())

    @property
    def key(self) -> frozenset[str]:
        """Columns of the primary key, as far as it is known."""
        return frozenset() if self.catalog is None else frozenset(self.catalog.primary_key)

    @property
    def was_full(self) -> bool:
        """Whole rows were sent until now."""
        return self.held is not None and self.held.letter is ReplicaIdentity.FULL

    @property
    def is_keyless(self) -> bool:
        """Whether only whole rows can be sent: only ustore sends any of a table without a key."""
        is_default = self.declared.letter is ReplicaIdentity.DEFAULT
        return self.catalog is not None and is_default and not self.key

    @property
    def is_full(self) -> bool:
        """Whole rows are declared, or where nothing is known were sent."""
        if self.catalog is None:
            return self.was_full
        return self.declared.letter is ReplicaIdentity.FULL


Rule = Callable[[_Case], Identity | None]


def _speculative(case: _Case) -> Identity | None:
    """The table's deletes have an old tuple: one without takes back what an upsert inserted."""
    declared = case.declared
    if case.catalog is None or case.shape.op != "D" or case.shape.old is not None:
        return None
    hides_row = declared.letter is ReplicaIdentity.FULL and case.nulls is Nulls.HIDDEN
    if not declared.names or (hides_row and not case.key):  # it may be a row of NULLs
        return None
    kept = case.held if case.held is not None and case.held.names else declared
    return dataclasses.replace(kept, has_gaps=case.gaps, flips=case.flips, is_speculative=True)


def _whole_without_nulls(case: _Case) -> Identity | None:
    """The server leaves NULLs out: the old columns, however few, are a whole row."""
    if case.nulls is Nulls.SENT:
        return None
    if case.shape.old is None:
        is_whole = case.is_full and case.nulls is Nulls.HIDDEN and case.shape.op in "UD"
    else:
        is_whole = case.shape.old == () or case.is_full or case.is_keyless  # a key has no NULL
    return Identity(ReplicaIdentity.FULL, case.names) if is_whole else None


def _delete_without_old(case: _Case) -> Identity | None:
    """Nothing old is sent at all."""
    if case.shape.old is not None or case.shape.op != "D":
        return None
    letter = ReplicaIdentity.NOTHING if case.declared.names else case.declared.letter
    return Identity(letter, frozenset(), flips=case.flips)


def _without_old(case: _Case) -> Identity | None:
    """An insert, or an update that may have left its unchanged key out: nothing is new."""
    if case.shape.old is not None:
        return None
    kept = case.held if case.held is not None and case.held.names else case.declared
    return dataclasses.replace(kept, has_gaps=case.gaps, flips=case.flips)


def _all_columns(case: _Case) -> Identity | None:
    """Every column is there; after a part of them that counts as a flip."""
    if case.seen != case.names:
        return None
    flips = case.flips + _is_part(case.held, case.names)
    found = _whole(case.names, case.declared, case.held)
    return dataclasses.replace(found, has_gaps=case.gaps, flips=flips)


def _full_with_gaps(case: _Case) -> Identity | None:
    """A whole row without its NULLs: known, proved, or seen to come and go."""
    is_full = case.is_full or case.is_keyless
    is_proof = is_full and case.catalog is not None and (case.seen > case.key or not case.key)
    if case.gaps or is_proof or (is_full and case.flips >= MAX_FLIPS):
        return Identity(ReplicaIdentity.FULL, case.names, has_gaps=True, flips=case.flips)
    return None


def _as_declared(case: _Case) -> Identity | None:
    """Exactly the columns that the catalogue names."""
    if case.seen != case.declared.names:
        return None
    return dataclasses.replace(case.declared, flips=case.flips)


def _other_columns(case: _Case) -> Identity | None:
    """Others than are declared: what the WAL was written with is right."""
    is_key = case.catalog is None or case.seen == case.key
    letter = ReplicaIdentity.DEFAULT if is_key else ReplicaIdentity.INDEX
    return Identity(letter, case.seen, flips=case.flips)


RULES: Final[tuple[Rule, ...]] = (
    _speculative,
    _whole_without_nulls,
    _delete_without_old,
    _without_old,
    _all_columns,
    _full_with_gaps,
    _as_declared,
    _other_columns,
)
"""The first that has an answer is right; the last one has one for every case that it is asked."""


def judge(
    shape: Shape,
    names: frozenset[str],
    before: Identity | None,
    catalog: CatalogTable | None,
    nulls: Nulls = Nulls.SENT,
) -> Identity:
    """Decide which old columns are sent: from old tuples, else from the catalogue.

    Args:
        shape: shape of the row at hand.
        names: all columns of the table.
        before: identity in force until now, or None.
        catalog: identity declared now, or None.
        nulls: how NULLs appear in old tuples.
    """
    case = _Case(
        shape,
        names,
        _held(names, before),
        _declared(names, catalog),
        catalog,
        nulls,
        gaps=before is not None and before.has_gaps,
        flips=0 if before is None else before.flips,
    )
    found = next(identity for rule in RULES if (identity := rule(case)) is not None)
    if nulls is Nulls.SENT:
        return found
    has_gaps = found.has_gaps or found.letter is ReplicaIdentity.FULL
    return dataclasses.replace(found, has_gaps=has_gaps)


def _is_part(held: Identity | None, names: frozenset[str]) -> bool:
    """Whether some of the columns were sent until now, and not all."""
    return held is not None and bool(held.names) and held.names < names


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
