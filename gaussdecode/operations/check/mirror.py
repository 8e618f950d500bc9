"""Check the mirror: whether its store works, and which landing it holds."""

import dataclasses
from typing import Final

from gaussdecode.errors import ConfigError, LandingError, MirrorError, MirrorRefusedError
from gaussdecode.land.mirror.plan import newest_entry
from gaussdecode.land.mirror.restore import find_layout
from gaussdecode.land.names import COMMITS
from gaussdecode.objects.store import AnyStore, open_store
from gaussdecode.operations.check.doctor import Finding
from gaussdecode.operations.landing_files import layout_at
from gaussdecode.settings.sections import Config

_AWAY: Final = (
    "the daemon lands anyway, and ships when the store is back; with `confirm: mirror` the "
    "server keeps its WAL until then"
)


@dataclasses.dataclass(frozen=True, slots=True)
class MirrorSeen:
    """Result of the check.

    Attributes:
        text: one line of the report.
        problems: problems that keep the daemon from running, or the mirror from ever working.
        findings: problems that may pass.
    """

    text: str
    problems: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()


def examine_mirror(config: Config) -> MirrorSeen:
    """Put, get, list and remove a test object, and read which landing the mirror holds."""
    url = config.mirror.url
    try:
        store = open_store(config.mirror)
        store.prove()
        return _held(config, store)
    except (MirrorRefusedError, ConfigError, LandingError) as error:
        return MirrorSeen(f"{url}: cannot be used", (f"landing.mirror: {error}",))
    except MirrorError as error:
        remedy = (
            "see that landing.mirror.url and endpoint are right and the store is reached from here"
        )
        finding = Finding(f"the store of the mirror does not answer: {error}", _AWAY, remedy)
        return MirrorSeen(f"{url}: not reached", findings=(finding,))


def _held(config: Config, store: AnyStore) -> MirrorSeen:
    url, theirs, ours = config.mirror.url, find_layout(store), layout_at(config.landing.root)
    if theirs is None:
        return MirrorSeen(f"{url}: empty, puts are conditional")
    newest = newest_entry(store.names(COMMITS)[1])
    if ours is None:
        return MirrorSeen(f"{url}: a landing up to entry {newest}; this host would go on with it")
    if theirs.landing_id != ours.landing_id:
        problem = (
            f"landing.mirror.url: {url} holds another landing ({theirs.landing_id}), not the one of "
            f"{config.landing.root} ({ours.landing_id}): give each landing a prefix of its own"
        )
        return MirrorSeen(f"{url}: another landing", (problem,))
    return MirrorSeen(f"{url}: this landing up to entry {newest}, puts are conditional")
