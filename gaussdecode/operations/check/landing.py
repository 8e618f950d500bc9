"""Find misconfiguration around a landing: its directory, the file system, and the memory of the daemon."""

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gaussdecode.host.access import group_name, user_name
from gaussdecode.land.names import LAYOUT
from gaussdecode.land.snapshots import SnapshotStore
from gaussdecode.land.space import Reserve
from gaussdecode.operations.check.doctor import Finding
from gaussdecode.operations.landing_files import opened
from gaussdecode.operations.owner import landing_owner
from gaussdecode.settings.sections import Config
from gaussdecode.settings.types import format_size

_FREE_FACTOR: Final = 20  # target files that should find room; arbitrary


def examine_landing(config: Config) -> list[Finding]:
    """Check the landing's directory: owner, mode, room, and whether sync, link and rename work.

    Tries these with a temporary file, if the landing or the nearest directory above it is writable.
    """
    root = config.landing.root
    try:
        place = next(path for path in (root, *root.parents) if path.exists())
    except PermissionError:
        return []  # a problem of the plan's already
    found = list(_room(config, place))
    if root.exists() and _is_of_others(root):
        found.append(
            Finding(
                f"{root} holds other files, and no landing",
                "a landing needs a directory of its own",
                "another directory for landing.root",
            )
        )
    elif root.exists() and root.stat().st_mode & stat.S_IRWXO:
        found.append(
            Finding(
                f"{root} is open to everybody",
                "the landing holds the rows of the database",
                f"chmod o-rwx {root}",
            )
        )
    if os.access(place, os.W_OK):
        found += _try_file_system(place)
    else:
        found.append(_not_writable(config, place))
    if place == root and os.access(root, os.R_OK):
        found += _requests(root)
    return found


def _is_of_others(root: Path) -> bool:
    """Whether a directory has files, and none of them is a landing's; False if it may not be read."""
    if not os.access(root, os.R_OK | os.X_OK) or (root / LAYOUT).exists():
        return False
    return any(name != "lost+found" for name in os.listdir(root))


def _requests(root: Path) -> Iterator[Finding]:
    """Find snapshot requests that the daemon cannot read."""
    with opened(root) as disk:
        for path, fault in SnapshotStore(disk).requests().faults.items():
            yield Finding(
                f"a request for a snapshot cannot be used: {fault}",
                "the daemon ignores it, and reads no table for it",
                f"rm {root / path}  # then gaussdecode snapshot again",
                "snapshot-request",
            )


def _not_writable(config: Config, place: Path) -> Finding:
    owner, root = landing_owner(config), config.landing.root
    is_ours = owner.uid == os.geteuid()
    make = f"sudo install -d -m 0750 -o {owner.name} -g {group_name(owner.gid)} {root}"
    return Finding(
        f"{place} may not be written by user {user_name(os.geteuid())}",
        "the landing cannot be made there"
        if is_ours
        else f"the daemon runs as {owner.name}; this check did not",
        make if is_ours else f"sudo gaussdecode check {config.path}",
    )


def _room(config: Config, place: Path) -> Iterator[Finding]:
    landing, facts = config.landing, os.statvfs(place)
    free, kept = map(int, Reserve(place, landing.min_free_bytes).measure())
    room = max(0, free - kept)
    if room < _FREE_FACTOR * landing.target_file_size:
        yield Finding(
            f"{room >> 20} MiB are free for {landing.root}, beside {kept >> 20} MiB that are left free",
            f"files of {landing.target_file_size >> 20} MiB and the spool need room",
            "grow the file system, or set landing.retention, or landing.min-free-bytes",
        )
    elif landing.spool_bytes is not None and room < landing.spool_bytes:
        yield Finding(
            f"landing.spool-bytes is {format_size(landing.spool_bytes)}, and {room >> 20} MiB are free "
            f"for {landing.root}",
            "open transactions would fill the disk before they reach their bound",
            "lower landing.spool-bytes, or grow the file system",
        )
    if facts.f_files and facts.f_favail < 10_000:
        yield Finding(
            f"{facts.f_favail} inodes are free for {config.landing.root}",
            "every table gets a file in each entry",
            "grow the file system, or set landing.retention",
        )


def _try_file_system(place: Path) -> Iterator[Finding]:
    """Do the file operations of a commit, on a temporary file."""
    try:
        with tempfile.TemporaryDirectory(prefix=".gaussdecode-check-", dir=place) as name:
            first, second = Path(name, "a"), Path(name, "b")
            with first.open("wb") as file:
                file.write(b"x")
                os.fsync(file.fileno())
            os.link(first, second)
            os.rename(second, Path(name, "c"))
            directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
    except OSError as error:
        yield Finding(
            f"{place} does not do what committing an entry needs: {error.strerror}",
            "files are synced, linked and renamed so that each change lands exactly once",
            "use a local file system (ext4, xfs, btrfs, zfs) for landing.root",
        )


def examine_memory(config: Config, limit: int | None, whose: str) -> list[Finding]:
    """Check that all buffers together fit into memory.

    Args:
        config: the configuration.
        limit: bytes; None without a limit.
        whose: source of the limit.
    """
    total = sum(config.memory_budget().values())
    if limit is None or total <= limit:
        return []
    return [
        Finding(
            f"the buffers may hold {total >> 20} MiB, {whose} allows {limit >> 20} MiB",
            "when they are full the kernel kills the daemon, and again after each restart",
            "raise MemoryMax (systemctl edit), or lower landing.memory-bytes, landing.row-group-bytes, "
            "landing.writer-lanes, snapshot.workers or the ring sizes",
        )
    ]
