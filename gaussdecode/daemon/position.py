"""Give a source the position of its landing: whose it is, how far it is, and its last transaction."""

from gaussdecode.land.entry import Entries
from gaussdecode.land.layout import Layout
from gaussdecode.land.transactions import landed_lsn
from gaussdecode.model.lsn import Lsn
from gaussdecode.source.slot import LandingPosition


def landing_position(layout: Layout, entries: Entries, source: str) -> LandingPosition | None:
    """Read it from the newest entries; None for a log that has none.

    Args:
        layout: layout of the landing.
        entries: entries of its log.
        source: name of the source that is told.

    Raises:
        LandingError: an entry is damaged.
        DiskError: the file system failed.
    """
    identity = layout.sources[source]
    numbers = entries.numbers()
    if not numbers:
        return None
    position = entries.one(numbers[-1]).positions[source]
    return LandingPosition(
        system_identifier=identity.system_identifier,
        timeline=position.timeline,
        database=identity.database,
        slot=identity.slot,
        plugin=identity.plugin,
        lsn=Lsn(position.lsn),
        landed_lsn=Lsn(landed_lsn(entries, source)),
    )
