"""Find the landing that a daemon goes on with: at its root, or in its mirror."""

import dataclasses
import secrets
from collections.abc import Mapping
from pathlib import Path

from gaussdecode.errors import ConfigError
from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files, make_root
from gaussdecode.land.layout import read_layout
from gaussdecode.land.mirror.restore import Told, find_layout, restore
from gaussdecode.land.space import SpaceWait
from gaussdecode.logs import Event, get_logger
from gaussdecode.model.landing import SourceIdentity
from gaussdecode.objects.store import open_store
from gaussdecode.settings.sections import Config

_log = get_logger("daemon")


def no_landing(config: Config) -> str:
    """Say that there is nothing to go on with, and what begins it."""
    root = config.landing.root
    found = "holds no landing" if root.is_dir() else "does not exist"
    return (
        f"{config.path.name}: landing.root: {root} {found}. If it is on a file system that is not mounted, "
        f"mount it. To begin a landing there: gaussdecode slot create {config.path}, or, for a slot that "
        f"exists, gaussdecode slot adopt {config.path}"
    )


def begin_from_mirror(config: Config, space: SpaceWait, told: Told) -> dict[str, SourceIdentity]:
    """Fetch the landing that a mirror holds into an empty root; gives whose it is, if any.

    Args:
        config: configuration with a mirror.
        space: waits for room on the disk.
        told: how far it is.

    Raises:
        GaussDecodeError: it is damaged, or the store does not do it.
    """
    root = config.landing.root
    store = open_store(config.mirror)
    layout = find_layout(store)
    if layout is None:
        return {}
    if set(config.members) != set(layout.sources):
        raise ConfigError(
            f"{config.path.name}: landing.mirror.url: {store.url} holds the landing of slot "
            f"{', '.join(layout.sources)}, not of {', '.join(config.members)}; correct one of them"
        )
    make_root(root)
    files = Files(root)
    try:
        files.check_root()
        files.lock()
        last = restore(Disk(files, space, secrets.token_hex(8)), store, told)
    finally:
        files.close()
    _log.warning(Event.MIRROR_FETCHED, url=config.mirror.url, entry=last)
    return kept_identities(root)


def kept_identities(root: Path) -> dict[str, SourceIdentity]:
    """Whose landing is at `root`, by name; nobody's where there is none yet."""
    if not root.is_dir():
        return {}
    files = Files(root)
    try:
        layout = read_layout(Disk(files, SpaceWait(), "look"))
    finally:
        files.close()
    return {} if layout is None else dict(layout.sources)


def as_configured(config: Config, kept: Mapping[str, SourceIdentity]) -> dict[str, SourceIdentity]:
    """What a landing says of its sources, with the slots of the configuration."""
    kind, members = config.source.kind.value, config.members
    if len(kept) == len(members) == 1:
        (identity,) = kept.values()
        return {name: dataclasses.replace(identity, slot=name, kind=kind) for name in members}
    first = next(iter(kept.values()))
    return {
        name: dataclasses.replace(kept.get(name, first), slot=member.slot, kind=kind)
        for name, member in members.items()
    }
