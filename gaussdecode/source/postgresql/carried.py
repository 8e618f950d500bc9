"""Decide whether the stream of PostgreSQL carries every change of a table.

A table that is read in several views needs every change between them in the stream. Three kinds are missing:
changes that a publication does not send, changes that have an origin under only-local, and updates whose old
key the server does not log. Then `Carried.reason` says why, and the table must be read in one view,
which needs no changes.

One row filter, or equal ones, do not hide changes: the server has them use the replica identity alone, and
sends a row that enters or leaves the filter as INSERT and DELETE. The evidence (OIDs and versions of all that
the verdict rests on) must be the same in the first and the last view, so that a setting changed there and back
is noticed.

The queries read catalogue tables themselves, so that in a transaction the answer fits its view;
functions and views of the server answer as of now.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gaussdecode.source.postgresql.connection import Connection
from gaussdecode.source.quoting import literal

_ACTIONS: Final = ("INSERT", "UPDATE", "DELETE")

# Members of a publication by table, with what stands above each table.
_MEMBERS: Final = """
    SELECT c.oid, (SELECT pg_catalog.string_agg(pg_catalog.format('%s.%s', r.oid, r.xmin), ' ' ORDER BY r.oid)
        FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
        WHERE p.pubname IN ({names}) AND (r.prrelid = c.oid OR r.prrelid IN
            (SELECT a.relid::oid FROM pg_catalog.pg_partition_ancestors(c.oid) a)))
    FROM pg_catalog.pg_class c WHERE c.oid IN ({oids})
"""
_PUBLICATIONS: Final = """
    SELECT p.pubname, p.pubinsert, p.pubupdate, p.pubdelete, p.oid, p.xmin
    FROM pg_catalog.pg_publication p WHERE p.pubname IN ({names}) ORDER BY p.oid
"""
_SCHEMAS: Final = """
    SELECT s.oid, s.xmin FROM pg_catalog.pg_publication_namespace s
    JOIN pg_catalog.pg_publication p ON p.oid = s.pnpubid WHERE p.pubname IN ({names}) ORDER BY s.oid
"""
_ORIGINS: Final = """
    SELECT (SELECT count(*) FROM pg_catalog.pg_replication_origin),
        pg_catalog.pg_stat_get_tuples_inserted(o.oid) FROM pg_catalog.pg_class o
    WHERE o.oid = 'pg_catalog.pg_replication_origin'::pg_catalog.regclass
"""
# Identity, version, and the columns of the replica identity of a table or partition.
_IDENTITIES: Final = """
    SELECT c.oid, c.xmin, c.relreplident, i.indexrelid,
        (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ',' ORDER BY a.attname)
            FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey::int2[])),
        EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid
            AND a.attnum = ANY (i.indkey::int2[]) AND a.attgenerated <> '')
    FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND (
        (c.relreplident IN ('d', 'f') AND i.indisprimary) OR (c.relreplident = 'i' AND i.indisreplident))
    WHERE c.oid IN ({oids}) ORDER BY c.oid
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Sender:
    """One publication that has a table.

    Attributes:
        name: name of it.
        actions: actions of `_ACTIONS`, that it sends.
        filter: row filter; None for all rows.
    """

    name: str
    actions: frozenset[str]
    filter: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Carried:
    """Whether the stream shows all changes of a table.

    Attributes:
        reason: why some may not show in the stream; None where all do.
        evidence: another text when something of this was changed in between, also there and
            back.
    """

    reason: str | None = None
    evidence: str = ""


def why_not_sent(senders: Sequence[Sender]) -> str | None:
    """Say which changes publications leave out; None where they send all.

    A row's way into a filter and out of it is sent as its coming and going, because the
    server has filters use columns of the replica identity alone. That holds as long as the
    same filter decides for every kind of change.
    """
    by_action: dict[str, frozenset[str] | None] = {}
    for action in _ACTIONS:
        sending = [sender for sender in senders if action in sender.actions]
        if not sending:
            names = ", ".join(repr(sender.name) for sender in senders)
            return f"publication {names} does not send {action}"
        filters = [sender.filter for sender in sending]
        is_all = any(text is None for text in filters)
        by_action[action] = None if is_all else frozenset(str(text) for text in filters)
    if len(set(by_action.values())) > 1:
        return "publications send different rows of it by kind of change"
    return None


def why_filtered(origins: int, *, is_local_only: bool) -> str | None:
    """Say that only-local may leave changes out; None where nothing here has an origin."""
    if is_local_only and origins:
        return (
            "the server has replication origins, and decoding.only-local leaves out what is "
            "written under one"
        )
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Logged:
    """The old columns that the server logs of a table or partition.

    Attributes:
        oid: pg_class.oid.
        identity: pg_class.relreplident.
        key: columns of the replica identity, or of the primary key under FULL.
        is_generated: one of these is generated.
    """

    oid: int
    identity: str
    key: str
    is_generated: bool


def why_not_logged(table: Logged, leaves: Iterable[Logged]) -> str | None:
    """Say that an old key may not show; None where it always does."""
    if table.is_generated:
        return "a generated column is part of its key"
    for leaf in leaves:
        if (leaf.identity, leaf.key) != (table.identity, table.key):
            return "a partition has another replica identity than the table"
    return None


class Changes:
    """Asks about tables, each time in the transaction's view.

    Args:
        connection: connection of the reader.
        publications: names.
        is_local_only: ``decoding.only-local``.
    """

    def __init__(
        self, connection: Connection, publications: Sequence[str], *, is_local_only: bool
    ) -> None:
        self._connection = connection
        self._names = ", ".join(literal(name) for name in publications) or "NULL"
        self._is_local_only = is_local_only

    def actions(self) -> dict[str, frozenset[str]]:
        """Actions that each publication sends, by its name."""
        rows = self._connection.query(_PUBLICATIONS.format(names=self._names))
        return {
            row[0] or "": frozenset(
                action for action, sends in zip(_ACTIONS, row[1:4], strict=True) if sends == "t"
            )
            for row in rows
        }

    def evidence(self, oids: Sequence[int]) -> Mapping[int, str]:
        """What is compared of published tables, by OID."""
        if not oids:
            return {}
        query, names = self._connection.query, self._names
        shared = [row[4:] for row in query(_PUBLICATIONS.format(names=names))]
        if self._connection.server_version >= 150000:
            shared += query(_SCHEMAS.format(names=names))
        listed = ", ".join(str(oid) for oid in oids)
        members = query(_MEMBERS.format(names=names, oids=listed))
        return {int(oid or 0): f"{shared} {member}" for oid, member in members}

    def judge(self, oid: int, leaves: Sequence[int], senders: Sequence[Sender]) -> Carried:
        """Judge one table.

        Args:
            oid: OID of the table.
            leaves: OIDs of its partitions, where it is sent as a whole; else itself.
            senders: publications that have it, with their filters.
        """
        sent = self.actions()
        senders = [
            dataclasses.replace(sender, actions=sent.get(sender.name, frozenset()))
            for sender in senders
        ]
        ((count, inserted),) = self._connection.query(_ORIGINS)
        listed = ", ".join(str(number) for number in {oid, *leaves})
        rows = self._connection.query(_IDENTITIES.format(oids=listed))
        logged = {
            int(row[0] or 0): Logged(int(row[0] or 0), row[2] or "", row[4] or "", row[5] == "t")
            for row in rows
        }
        reason = (
            why_not_sent(senders)
            or why_filtered(int(count or 0), is_local_only=self._is_local_only)
            or (why_not_logged(logged[oid], logged.values()) if oid in logged else None)
        )
        written = f"{count} {inserted}" if self._is_local_only else ""
        evidence = f"{self.evidence([oid])} {written} {[row[:4] for row in rows]}"
        return Carried(reason, evidence)
