r"""Find the attribute number of each column that the stream sends.

An attribute number identifies a column. PostgreSQL never gives one twice in a table. A rename or a change of
type keeps it, and a dropped column leaves its number behind. But the stream does not send numbers. There
are three sources:

- *The wire* describes a table at a position P: names and types of the sent columns, in the order of their
  numbers, without dropped ones. After every DDL on the table, and after much else, the description comes
  again with the next change.
- *The catalogue* is read later than P. It has every number that was ever given, dropped ones
  too. A column that lives there lived at P if it existed then. A row of it that is *settled*
  was written by a transaction that ended before anything that the slot still has to send: it
  was the same at P.
- *Earlier proofs*: the numbers of an earlier description of the table. A number among them lives at P or was
  dropped. A number below their highest that is not among them was dropped or is not sent.

`place` asks in how many ways the columns of the wire can be attributes such that all this
holds. A column that is the same attribute in all of them is proved to be it. Any other one is
unknown, and nobody guesses: not by its name, which may have changed hands, and not by its type. Where DDL
is in the stream, it may choose one of the ways (`placed_as`, `collect.ddl_states`).

::

    wire (id, v)   catalogue 1:id 2:dropped 3:v    all settled              v is 3
    wire (id, v)   catalogue 1:id 2:dropped 3:v    2 and 3 are recent       v is 2 or 3: unknown
    wire (id, old, v)  catalogue 1:id 2:old 3:v    proved before: 1 and 2   v is 3
    wire (id, w)   catalogue 1:id 2:v              proved before: 1 and 2   w is 2, renamed later

One thing is taken for granted: a column that was added as a generated one, made an ordinary one
(DROP EXPRESSION), and has now the name that another column of its table had at P, was not all that
since P. Where its name is not on the wire, nothing is taken for granted.
"""

import dataclasses
from collections.abc import Sequence
from typing import Final

AMBIGUOUS: Final = "columns were dropped and added, and nothing tells which came before these rows"
CONTRADICTED: Final = "the catalogue of the server does not fit what the stream said"
NO_CATALOG: Final = "the catalogue of the server could not be asked"
DROPPED: Final = (
    "the catalogue of the server had no such table any more, so nothing tells which column of its last changes "
    "is which"
)
GONE: Final = "the catalogue of the server had another table when it was asked"


@dataclasses.dataclass(frozen=True, slots=True)
class WireColumn:
    """One column, as the stream describes it.

    Attributes:
        name: true name.
        type_oid: pg_type.oid.
        type_modifier: -1 for none.
    """

    name: str
    type_oid: int
    type_modifier: int


@dataclasses.dataclass(frozen=True, slots=True)
class Attribute:
    """One row of pg_attribute, as it is when it is read.

    Attributes:
        number: attnum.
        name: attname; of a dropped one it means nothing.
        type_oid: atttypid.
        type_modifier: atttypmod.
        is_dropped: attisdropped.
        is_generated: attgenerated is not empty.
        is_settled: the row was like this before anything that the slot still has to send.
    """

    number: int
    name: str
    type_oid: int
    type_modifier: int
    is_dropped: bool = False
    is_generated: bool = False
    is_settled: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """All attributes of a table, read after the position in question.

    Attributes:
        attributes: all that were ever made, by number.
        may_hide: a publication may have had a list of columns, so that not all are sent.
        sends_generated: stored generated columns may be sent (from 18 on).
    """

    attributes: tuple[Attribute, ...]
    may_hide: bool = False
    sends_generated: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Known:
    """What was proved of a table at an earlier position.

    Attributes:
        numbers: numbers of the columns that were sent.
        dropped: numbers that were dropped by then; not all of them.
    """

    numbers: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()

    @property
    def highest(self) -> int:
        """All numbers up to it had been given."""
        return max(self.numbers | self.dropped, default=0)


@dataclasses.dataclass(frozen=True, slots=True)
class Placed:
    """The answer.

    Attributes:
        numbers: numbers of each column of the wire; None where it is unknown.
        reason: why one is unknown; None when none is.
        known: numbers that are proved from here on.
    """

    numbers: tuple[int | None, ...]
    reason: str | None
    known: Known


@dataclasses.dataclass(frozen=True, slots=True)
class _May:
    """What an attribute may have been at the position.

    Attributes:
        columns: bit i is set when it may be column i of the wire.
        unsent: it may exist and be none of them.
        unborn: it may have been made later.
    """

    columns: int
    unsent: bool
    unborn: bool


def unplaced(count: int, reason: str, known: Known) -> Placed:
    """Nothing can be said of any column."""
    return Placed((None,) * count, reason, known)


def place(wire: Sequence[WireColumn], reading: Reading, known: Known) -> Placed:
    """Find the attribute of each column.

    Args:
        wire: description at a position, in its order.
        reading: reading of the catalogue, later.
        known: proved for an earlier position; `Known()` for nothing.
    """
    count = len(wire)
    may = [_may(attribute, wire, reading, known) for attribute in reading.attributes]
    # Bit i of ahead[a]: attributes before a can be the columns before i, all of them existing.
    ahead = [1]
    for of in may:
        ahead.append((ahead[-1] & of.columns) << 1 | (ahead[-1] if of.unsent else 0))
    # Bit i of beyond: attributes from a on can be the columns from i on.
    beyond = 1 << count
    is_unborn = True
    first: int = 0  # columns that some attribute can be
    second: int = 0  # columns that several can be
    at: dict[int, int] = {}
    for a in range(len(may) - 1, -1, -1):
        of = may[a]
        found = ahead[a] & of.columns & (beyond >> 1)
        second |= first & found
        first |= found
        at[a] = found
        is_unborn = is_unborn and of.unborn
        beyond = _beyond(of, beyond) | ((1 << count) if is_unborn else 0)
    if not beyond & 1:
        return unplaced(count, CONTRADICTED, known)
    numbers: list[int | None] = [None] * count
    for a, found in at.items():
        only = found & ~second
        while only:
            bit = only & -only
            numbers[bit.bit_length() - 1] = reading.attributes[a].number
            only ^= bit
    if None in numbers:
        return Placed(tuple(numbers), AMBIGUOUS, known)
    return Placed(tuple(numbers), None, _learned(numbers, reading, known))


def placed_as(
    wire: Sequence[WireColumn], reading: Reading, known: Known, numbers: Sequence[int]
) -> Placed | None:
    """Give the answer where columns have certain numbers; None where that is none of the ways.

    Args:
        wire: description at a position, in its order.
        reading: reading of the catalogue, later.
        known: proved for an earlier position.
        numbers: number of each column, rising.
    """
    columns = {number: index for index, number in enumerate(numbers)}
    if not columns.keys() <= {attribute.number for attribute in reading.attributes}:
        return None
    is_unborn = True
    for attribute in reversed(reading.attributes):
        may = _may(attribute, wire, reading, known)
        index = columns.get(attribute.number)
        if index is None:
            if not (may.unsent or (is_unborn and may.unborn)):
                return None
            is_unborn = is_unborn and may.unborn
        elif not may.columns >> index & 1:
            return None
        else:
            is_unborn = False
    return Placed(tuple(numbers), None, _learned(numbers, reading, known))


def _beyond(of: _May, beyond: int) -> int:
    """Columns from which on an attribute and those beyond it can be the rest."""
    return (beyond >> 1) & of.columns | (beyond if of.unsent else 0)


def _may(attribute: Attribute, wire: Sequence[WireColumn], reading: Reading, known: Known) -> _May:
    every = (1 << len(wire)) - 1
    number = attribute.number
    is_new = number > known.highest
    if number in known.dropped:
        return _May(0, unsent=True, unborn=False)
    if attribute.is_settled:
        return _settled(attribute, wire, reading)
    if attribute.is_dropped:
        return _May(every, unsent=True, unborn=is_new)
    if attribute.is_generated:
        return _May(every if reading.sends_generated else 0, unsent=True, unborn=is_new)
    if reading.may_hide:
        is_unsent = True
    elif is_new or (number in known.numbers and reading.sends_generated):
        is_unsent = all(column.name != attribute.name for column in wire)
    else:
        is_unsent = number not in known.numbers
    return _May(every, unsent=is_unsent, unborn=is_new)


def _settled(attribute: Attribute, wire: Sequence[WireColumn], reading: Reading) -> _May:
    """It was then what it is now."""
    if attribute.is_dropped or (attribute.is_generated and not reading.sends_generated):
        return _May(0, unsent=True, unborn=False)
    same = WireColumn(attribute.name, attribute.type_oid, attribute.type_modifier)
    for index, column in enumerate(wire):
        if column.name == attribute.name:
            return _May((1 << index) if column == same else 0, unsent=False, unborn=False)
    return _May(0, unsent=reading.may_hide or attribute.is_generated, unborn=False)


def _learned(numbers: Sequence[int | None], reading: Reading, known: Known) -> Known:
    sent = frozenset(number for number in numbers if number is not None)
    gone = frozenset(a.number for a in reading.attributes if a.is_dropped and a.is_settled)
    if not reading.may_hide and not reading.sends_generated:
        gone |= known.numbers - sent
    return Known(sent, known.dropped | gone)
