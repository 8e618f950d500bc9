"""Detect publications that were changed, dropped or made again since the landing began.

A publication that is dropped and made again, renamed away and back, or altered, exists at every check.
Yet changes that were made in between may never have been sent: PostgreSQL decides by the catalogue as it
was at each change. From version 18 on it only warns, and a warning can be missed.

So the landing stores OID and version (xmin) of every configured publication, and of each table and schema
that it lists: these have rows of their own. They are compared when a stream is about to start, and now and
then while it runs. A difference becomes a suspect entry, durable before anything after it lands. A
member that was added is no difference. Neither is a member that is missing because it was dropped.

A publication that was made again is not refused: made again in one transaction it loses nothing, and only
the operator can tell.

Pure: compares the server's answers, and asks no server.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from gaussdecode.land.names import table_directory
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.postgresql.members import Member, Members, sums

KEY: Final = "*publications"  # in the ledger, beside the tables
REASON: Final = "publication_changed"

Json = dict[str, Any]  # Any: JSON
Identities = Mapping[str, tuple[int, ...]]
"""By name of the publication: OID and xmin of the row in pg_publication, number and sum of the rows of its members.

Landings of before members were noted have the first two alone."""


def read_identities(record: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:  # Any: JSON
    """Identities out of JSON."""
    return {name: tuple(map(int, numbers)) for name, numbers in record.items()}


def are_known(known: Identities, seen: Identities) -> bool:
    """Tell whether nothing at all is different; what is missing now is others' to judge."""
    return all(known.get(name) == of for name, of in seen.items())


def differences(known: Identities, seen: Identities) -> list[str]:
    """Describe the change of each publication that differs; none is missing here."""
    found = []
    for name in sorted(known.keys() & seen.keys()):
        if known[name][0] != seen[name][0]:
            found.append(f"publication {name!r} was dropped and made again")
        elif known[name][1] != seen[name][1]:
            found.append(f"publication {name!r} was altered")
    return found


def taken_out(gone: Members, known: Identities, seen: Identities) -> dict[str, Sequence[Member]]:
    """What is to be said of members: nothing where the publication is another one, which says it all."""
    return {
        name: members
        for name, members in gone.items()
        if members and name in seen and known[name][0] == seen[name][0]
    }


def suspect(found: list[str], lsn: int, wal_end: int, gone: Members = MappingProxyType({})) -> Json:
    """Make the text of a suspect entry.

    Args:
        found: result of `differences`.
        lsn: everything up to here landed before.
        wal_end: WAL end of the server, when it was noticed.
        gone: result of `taken_out`.
    """
    told = found + [
        f"{', '.join(member.title for member in members)} was taken out of publication {name!r}"
        for name, members in sorted(gone.items())
    ]
    is_any = bool(found) or any(member.name is None for of in gone.values() for member in of)
    tables = {
        table_directory(member.schema, member.name)
        for members in gone.values()
        for member in members
        if member.name is not None
    }
    return {
        "reason": REASON,
        "text": f"{'; '.join(told)}: changes from {Lsn(lsn)} on that it did not publish meanwhile "
        "were never sent; compare the tables, and take a new snapshot of those that differ "
        "(gaussdecode snapshot --table)",
        "from_lsn": lsn,
        "until_lsn": max(lsn, wal_end),
        "tables": sorted(tables),
        "is_any_table": is_any,
        "transactions": [],
    }


def key_of(source: str | None) -> str:
    """Key of a source's publications in the ledger; None for the only source."""
    return KEY if source is None else f"{KEY}/{source}"


def known_to(
    store: SnapshotStore, source: str | None = None
) -> tuple[dict[str, tuple[int, ...]], dict[str, list[Member]]]:
    """Publications and members that the landing remembers; empty before the first."""
    record = store.ledger().get(key_of(source), {})
    members = record.get("members", {})
    return read_identities(record.get("seen", {})), {
        name: [Member(*member) for member in of] for name, of in members.items()
    }


def with_members(seen: Identities, members: Members) -> dict[str, tuple[int, ...]]:
    """The same publications, with these members; they may be newer than what was seen."""
    return {name: (*of[:2], *sums(members.get(name, ()))) for name, of in seen.items()}


def remember(
    store: SnapshotStore, seen: Identities, members: Members, source: str | None = None
) -> None:
    """Store the publications; durable when this returns."""
    known, known_members = known_to(store, source)
    kept = {name: list(of) for name, of in {**known, **seen}.items()}
    lists = {
        name: [list(member) for member in of] for name, of in {**known_members, **members}.items()
    }
    store.note({key_of(source): {"state": "listed", "seen": kept, "members": lists}})
