"""Describe the columns that one row of a GaussDB stream repeats about its table.

The stream has no relation messages: every row repeats the names of schema, table and
columns, and the types. A `Shape` is that part of one row, given to the slow path when the
translator does not know it; the answer is a `Definition`.
"""

import dataclasses

from gaussdecode.model.relation import Relation


@dataclasses.dataclass(frozen=True, slots=True)
class ShapeColumn:
    """One column of a tuple, as far as its style tells.

    Attributes:
        name: unquoted; empty in INSERT statements of sql_decoding, which name no columns.
        type_oid: pg_type.oid in binary style, else 0.
        type_name: the server's spelling without modifier in text and JSON style, else empty.
    """

    name: str
    type_oid: int = 0
    type_name: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The repeated part of one row.

    Attributes:
        tables: schema and table; several candidates where the text style, which does not
            quote, can be read in several ways.
        op: ``I``, ``U``, ``D``, or ``T`` for TRUNCATE.
        new: columns of the new tuple, or None when the record has none.
        old: columns of the old tuple, or None when the record has none.
    """

    tables: tuple[tuple[str, str], ...]
    op: str
    new: tuple[ShapeColumn, ...] | None
    old: tuple[ShapeColumn, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Definition:
    """How rows of a shape are to be translated.

    Attributes:
        relation: the version that describes them.
        is_new: no decoder has been told this version yet; the batch must be cut before it.
        has_gaps: old tuples may leave columns out because they are NULL (servers 3.0.0 to
            3.0.2 and 3.1), so that fewer columns than the identity's are no contradiction.
        takes_bare: an old tuple without any column is a row of NULLs; JSON does not show it.
        is_speculative: the row is a DELETE without an old tuple of a table whose deletes have one: it
            can only take back a row that an upsert inserted before. Asked for each transaction.
    """

    relation: Relation
    is_new: bool
    has_gaps: bool = False
    takes_bare: bool = False
    is_speculative: bool = False
