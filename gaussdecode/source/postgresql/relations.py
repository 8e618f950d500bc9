"""Number the relation versions of pgoutput, and describe each once to every decoder.

Given Relation and Type messages in wire order, numbers the versions, resolves types from the wire alone and
asks the white list. The registry lives as long as the connection.
"""

from collections.abc import Iterable

from gaussdecode.errors import SequenceError
from gaussdecode.model.relation import Relation
from gaussdecode.protocol.described import RelationMessage, TypeMessage, describe, parse_description
from gaussdecode.source.relations import WhiteList, relation_record
from gaussdecode.wire.encoding import UTF8, Encoding


class Relations:
    """Numbers relation versions of one connection.

    Args:
        white_list: wanted tables.
        encoding: encoding of names and values in this connection.
        unread: OIDs of tables of which only the length of each row is to be believed.
    """

    def __init__(
        self, white_list: WhiteList, encoding: Encoding = UTF8, unread: Iterable[int] = ()
    ) -> None:
        self.encoding = encoding
        self._unread = frozenset(unread)
        self._white_list = white_list
        self._user_types: dict[int, tuple[str, str]] = {}
        self._last_version = 0

    def note_type(self, message: bytes, *, is_streamed: bool = False) -> int:
        """Take a Type message; returns its OID."""
        parsed = parse_description(message, self.encoding, is_streamed=is_streamed)
        if not isinstance(parsed, TypeMessage):
            raise SequenceError(f"a {type(parsed).__name__} where a Type must be")
        self._user_types[parsed.oid] = (parsed.namespace, parsed.name)
        return parsed.oid

    def define(self, message: bytes, *, is_streamed: bool = False) -> Relation:
        """Take a Relation message; returns the new version.

        The last message of a table describes all its rows that follow, of whatever transaction: the
        server sends another before the first row that it does not fit. So numbers are
        given in wire order, also to a description that is rolled back later.
        """
        parsed = parse_description(message, self.encoding, is_streamed=is_streamed)
        if not isinstance(parsed, RelationMessage):
            raise SequenceError(f"a {type(parsed).__name__} where a Relation must be")
        self._last_version += 1
        relation = describe(parsed, self._last_version, self._user_types)
        if self._white_list.allows(relation.namespace, relation.name):
            return relation
        return describe(parsed, self._last_version, self._user_types, is_filtered=True)

    def record(self, relation: Relation, *, is_streamed: bool = False) -> bytes:
        """Its record of the raw batch."""
        return relation_record(
            relation, self.encoding, is_unread=relation.oid in self._unread, is_streamed=is_streamed
        )
