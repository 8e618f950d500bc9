"""Send relations to the decoders: apply the white list, and write the record of the raw batch.

Each server describes relations in its own way: by a message of pgoutput, or by the shape of a row. The
record's layout is in ``wire/_layout.pxd``.
"""

import json
import struct
from collections.abc import Iterable
from typing import Final

from gaussdecode.model.relation import Relation
from gaussdecode.settings.source_sections import DecodingConfig
from gaussdecode.wire.encoding import UTF8, Encoding

_RAW_RELATION: Final = struct.Struct("=IIIIHHI")
_PLAN_COLUMN: Final = struct.Struct("=BBBBB3x")
_FILTERED: Final = 1  # RELATION_FILTERED
_UNREAD: Final = 2  # RELATION_UNREAD
_STREAMED: Final = 4  # RELATION_STREAMED
_ALIGNMENT: Final = 8
_ALL: Final = "*"


class WhiteList:
    """The list of wanted tables.

    Args:
        items: pairs of schema and table; ``*`` stands for all. None lists everything.
    """

    def __init__(self, items: Iterable[tuple[str, str]] = ()) -> None:
        self._items = frozenset(items)

    def allows(self, namespace: str, name: str) -> bool:
        """Whether the rows of a table are wanted; names are compared exactly."""
        if not self._items:
            return True
        candidates = {(s, t) for s in (namespace, _ALL) for t in (name, _ALL)}
        return not candidates.isdisjoint(self._items)


def white_list(decoding: DecodingConfig) -> WhiteList:
    """The white list of the options."""
    return WhiteList(decoding.white_tables)


def relation_record(
    relation: Relation,
    encoding: Encoding = UTF8,
    *,
    is_unread: bool = False,
    is_streamed: bool = False,
) -> bytes:
    """Build RawRelation, PlanColumn[] and the definition, padded.

    Args:
        relation: relation as described.
        encoding: encoding of the values that follow.
        is_unread: its rows are stepped over.
        is_streamed: a transaction told it that has not committed.
    """
    definition = json.dumps(relation.to_record(), separators=(",", ":")).encode()
    columns = b"".join(
        _PLAN_COLUMN.pack(
            column.type.kind,
            column.type.element or 0,
            column.type.precision,
            column.type.scale,
            column.is_identity,
        )
        for column in relation.columns
    )
    size = _RAW_RELATION.size + len(columns) + len(definition)
    padding = -size % _ALIGNMENT
    head = _RAW_RELATION.pack(
        size + padding,
        relation.oid,
        relation.version,
        _FILTERED * relation.is_filtered | _UNREAD * is_unread | _STREAMED * is_streamed,
        len(relation.columns),
        encoding.number,
        len(definition),
    )
    return head + columns + definition + bytes(padding)
