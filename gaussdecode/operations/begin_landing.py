"""Begin a landing together with its slot, when the operator asks for it.

The daemon continues a landing; it never creates one. An empty directory may be a new landing, or the
mount point of a file system that is not mounted, and a slot does not tell whether anybody has read it.
So `slot create` and `slot adopt` also create root, layout and first entry. From then on all rules about
log and slot apply: a slot that was read before the daemon's first start is a gap like any other.

The files belong to the landing's owner, also if root runs the command; see `owner`.
"""

from collections.abc import Mapping
from typing import Final

from gaussdecode.daemon.catalogwatch import CatalogWatch
from gaussdecode.errors import ConfigError, IdentityError
from gaussdecode.land.commitlog import ORDER_CSN, ORDER_LSN, CommitLog
from gaussdecode.land.entry_steps import Draft
from gaussdecode.land.files import make_root
from gaussdecode.land.layout import check_layout, check_sources, read_layout
from gaussdecode.land.mirror.restore import find_layout
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.model.entry import BEGINS, WITHOUT_ROWS
from gaussdecode.model.landing import EntryKind, SourceIdentity, SourcePosition
from gaussdecode.model.lsn import Lsn
from gaussdecode.model.request import Reached
from gaussdecode.objects.store import open_store
from gaussdecode.operations.accept_gap import ask_server, check_server
from gaussdecode.operations.connections import is_gaussdb
from gaussdecode.operations.landing_files import opened
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.sections import Config
from gaussdecode.source.postgresql.catalog import Catalog
from gaussdecode.source.relations import white_list
from gaussdecode.source.slot import PLUGIN, SlotState
from gaussdecode.source.start import same_place_problem

_FIRST_EPOCH: Final = 1


def prepare_root(config: Config) -> None:
    """Check that the root exists and is usable, before anything is done at the server.

    Raises:
        ConfigError: it cannot be created, or cannot hold a landing.
        IdentityError: it holds the landing of another source.
    """
    root = config.landing.root
    make_root(root)
    with opened(root) as disk:
        disk.files.check_root()
        layout = read_layout(disk)
    if (
        layout is None
        and config.mirror.is_on
        and find_layout(open_store(config.mirror)) is not None
    ):
        raise ConfigError(
            f"{config.path.name}: landing.mirror.url: {config.mirror.url} holds a landing already. To go "
            f"on with it on this host: gaussdecode run {config.path}. To begin another one, give it a "
            "prefix of its own"
        )
    refusal = config.beginning_refusal
    if layout is None and refusal is not None:
        raise ConfigError(f"{config.path.name}: {refusal}")
    if layout is not None:
        plugin = config.source.plugin if is_gaussdb(config) else PLUGIN
        check_sources(layout, config.members)
        for name, member in config.members.items():
            server = ask_server(member, None)
            identity = server.identity(member.source.kind, member.slot, plugin)
            check_layout(layout, name, identity, order_of(config))


def begin_landing(config: Config, made_at: Mapping[str, Lsn] | None = None) -> dict[str, Lsn]:
    """Write the first entry of a landing at the position of its slots.

    If the landing has only a first entry, the entry moves to the slots' present position: an
    interrupted attempt can be repeated.

    Args:
        config: configuration of one server, or of several sources.
        made_at: positions of new slots, by source; the present position for existing slots.

    Returns:
        Position at which the landing begins, by source.

    Raises:
        ConfigError: the root cannot be used.
        IdentityError: two sources are the same database.
        SourceError: the server does not answer, or the slot cannot be landed.
        LandingError: the landing belongs to another source, or is in use.
    """
    refuse_same_database(config)
    begins = {
        name: _beginning(member, (made_at or {}).get(name))
        for name, member in config.members.items()
    }
    prepare_root(config)
    identities = {name: begin[0] for name, begin in begins.items()}
    (first, identity), *others = identities.items()
    with opened(config.landing.root) as disk:
        log = CommitLog.open(
            disk.files,
            identity,
            source=first,
            others=dict(others),
            order=order_of(config),
            space=disk.space,
        )
        kind, extra = (EntryKind.GENESIS, {}) if log.is_empty else (EntryKind.IDLE, {BEGINS: True})
        if log.is_empty and not config.snapshot.wants_rows:
            extra = {WITHOUT_ROWS: True}
        reached = {name: Reached(begin[1], None) for name, begin in begins.items()}
        position = reached.pop(log.source).position
        log.commit(Draft(kind=kind, position=position, others=reached, extra=extra))
        store = SnapshotStore(log.disk)
        store.prepare()
        for name, member in config.members.items():
            note_catalog(member, name if config.is_several else None, store)
    return {name: Lsn(begin[1].lsn) for name, begin in begins.items()}


def note_catalog(config: Config, source: str | None, store: SnapshotStore) -> None:
    """Record the states of a source's tables; later changes of them are reported.

    Args:
        config: configuration of one server.
        source: name of the source, if there are several.
        store: snapshot store of the landing.
    """
    if config.source.kind is not SourceKind.POSTGRESQL:
        return
    with Catalog(config) as catalog:
        watch = CatalogWatch(
            config.source.publication,
            source,
            catalog,
            store,
            white_list(config.decoding).allows,
            lambda _title, _oid: False,
            lambda _directory: False,
        )
        watch.begin(0)
        watch.recorded()


def refuse_same_database(config: Config) -> None:
    """Check that all sources are different databases.

    Raises:
        IdentityError: two are the same.
        SourceError: a server does not answer.
    """
    if not config.is_several:
        return
    places = {name: ask_server(member, None).place for name, member in config.members.items()}
    problem = same_place_problem(places)
    if problem is not None:
        raise IdentityError(f"{config.path.name}: {problem}")


def order_of(config: Config) -> str:
    """Order of a landing with this configuration."""
    return ORDER_CSN if config.lands_by_csn else ORDER_LSN


def _beginning(config: Config, made_at: Lsn | None) -> tuple[SourceIdentity, SourcePosition]:
    """Identity of a source, and the position at which the landing begins with it."""
    server = ask_server(config, None)
    check_server(config, None, server)
    slot = server.slot
    assert slot is not None
    _refuse_read(config, slot)
    lsn = made_at or slot.confirmed_flush_lsn or Lsn(0)
    identity = server.identity(config.source.kind, config.slot, slot.plugin)
    return identity, SourcePosition(_FIRST_EPOCH, server.timeline, int(lsn))


def _refuse_read(config: Config, slot: SlotState) -> None:
    if slot.is_active:
        raise ConfigError(
            f"{config.path.name}: slot {config.slot!r} is in use by process "
            f"{slot.active_pid or 'unknown'} of the server; stop its reader first"
        )
