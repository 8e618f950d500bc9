"""Compare a configuration that was read again with the running one.

The field of each key says whether a reload may change it (`settings.types.Setting.is_for_start`). All of
decoding may: the landing itself refuses another order.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from gaussdecode.errors import ConfigError
from gaussdecode.settings.load import SECTIONS
from gaussdecode.settings.sections import Config


class Reloaded(NamedTuple):
    """What comes of a reload.

    Attributes:
        config: the configuration to go on with.
        taken: keys whose new value is in it.
        refused: keys that differ in the file and keep the value of the start.
    """

    config: Config
    taken: tuple[str, ...]
    refused: tuple[str, ...]


def compare(running: Config, read: Config) -> Reloaded:
    """Take over what may change.

    Args:
        running: the configuration that the daemon works with.
        read: the same file, read again.

    Raises:
        ConfigError: other sources, which no reload can take.
    """
    if running.is_several != read.is_several or running.members.keys() != read.members.keys():
        what = "sources" if running.is_several or read.is_several else "slot"
        raise ConfigError(f"{read.path.name}: {what}: cannot change without a restart")
    if running.source.kind is not read.source.kind:
        raise ConfigError(f"{read.path.name}: source.kind: cannot change without a restart")
    taken: set[str] = set()
    refused: set[str] = set()
    for name, member in read.members.items():
        before = f"sources.{name}." if read.is_several else ""
        for key, is_for_start in _differences(running.members[name], member):
            of_member = key in ("source.dsn", "source.ha-port", "source.password-file", "slot")
            spelled = before + key.removeprefix("source.") if before and of_member else key
            (refused if is_for_start else taken).add(spelled)
    kept = _kept(running, read)
    if read.is_several:
        members = {name: _kept(running.members[name], of) for name, of in read.members.items()}
        kept = dataclasses.replace(kept, _members=members)
    return Reloaded(kept, tuple(sorted(taken)), tuple(sorted(refused)))


def _differences(running: Config, read: Config) -> Iterator[tuple[str, bool]]:
    """Keys that differ, and whether only a restart takes them."""
    if running.slot != read.slot:
        yield "slot", True
    old, new = running.decoding.given, read.decoding.given
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield f"decoding.{key}", False
    for name, cls in SECTIONS.items():
        part = name.rpartition(".")[2]
        for field in dataclasses.fields(cls):
            if getattr(getattr(running, part), field.name) != getattr(
                getattr(read, part), field.name
            ):
                key = f"{name}.{field.name.replace('_', '-')}"
                yield key, field.metadata["setting"].is_for_start


def _kept(running: Config, read: Config) -> Config:
    """What was read, with what only a restart changes as it is."""
    parts = {}
    for name, cls in SECTIONS.items():
        part = name.rpartition(".")[2]
        fixed = {
            field.name: getattr(getattr(running, part), field.name)
            for field in dataclasses.fields(cls)
            if field.metadata["setting"].is_for_start
        }
        parts[part] = dataclasses.replace(getattr(read, part), **fixed)
    # The rights to read the password may have been given up since the start.
    is_same_file = running.source.password_file == read.source.password_file
    password = running._kept if is_same_file else None  # noqa: SLF001
    return dataclasses.replace(read, slot=running.slot, _kept=password, **parts)
