"""Run a command with the rights of the owner of its landing or target.

A landing belongs to the account of its daemon; configuration and password belong to root. So a command
of root reads configuration and password as root. Then it becomes the owner of the landing, for good,
before it opens or creates anything there. No file of root's is left that the daemon could not read, and
the command may do only as much as the daemon. The same holds for a target of ``gaussdecode spark``. Any
other user stays the same user, and the system refuses actions without permission.

Every command that works on a landing or a target calls one of these functions before anything else.

Rejected: chown after each command (the daemon sees the file in between, and a killed command leaves
it), the effective user only (loaded code may ask for root again), a group that may write (every member
could change what has landed).
"""

import dataclasses
import os
import pwd
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

import gaussdecode
from gaussdecode.errors import ConfigError
from gaussdecode.host.access import group_name, obstacle, rights, user_name
from gaussdecode.land.names import LAYOUT
from gaussdecode.operations.unit import unit_user
from gaussdecode.settings.load import load
from gaussdecode.settings.sections import Config

_UMASK: Final = 0o027  # as in the unit: the group reads


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """The account that a command runs as.

    Attributes:
        uid: user id.
        gid: group id.
        home: home directory.
    """

    uid: int
    gid: int
    home: str

    @classmethod
    def of(cls, uid: int, gid: int) -> Self:
        """The account of a user; `gid` if it has no group of its own."""
        try:
            entry = pwd.getpwuid(uid)
        except KeyError:
            return cls(uid, gid, "/")
        return cls(uid, entry.pw_gid, entry.pw_dir)

    @property
    def name(self) -> str:
        """Name of the user, or its number."""
        return user_name(self.uid)

    def __str__(self) -> str:
        """``user:group``, for chown."""
        return f"{self.name}:{group_name(self.gid)}"


def load_as_owner(path: Path, look: Callable[[Config], object] = lambda _: None) -> Config:
    """Read a configuration; then, as root, become the owner of its landing.

    Args:
        path: configuration file.
        look: called between the two, while the rights are still those of the caller.

    Raises:
        ConfigError: the file is invalid or unreadable, or the owner may not run this program.
    """
    config = load(path)
    look(config)
    if os.geteuid() != 0:
        return config
    config = config.with_password_read()
    become(landing_owner(config))
    return config


def work_as_owner_of(place: Path) -> None:
    """As root, become the owner of a directory, or of the one that it will be created in.

    Raises:
        ConfigError: the owner may not run this program.
    """
    if os.geteuid() == 0:
        become(_owner_of(place))


def landing_owner(config: Config) -> Account:
    """The account that owns the landing of a configuration, or will own it.

    For an existing landing this is its owner. Before it exists, it is the user of the unit that runs
    the configuration; without such a unit, the owner of the directory that it will be created in.
    """
    root = config.landing.root
    if not (root / LAYOUT).exists():
        user = unit_user(config.path)
        if user is not None and (not root.exists() or root.stat().st_uid == 0):
            return Account.of(user.pw_uid, user.pw_gid)
    return _owner_of(root)


def _owner_of(place: Path) -> Account:
    place = place.absolute()
    facts = next(path for path in (place, *place.parents) if path.exists()).stat()
    return Account.of(facts.st_uid, facts.st_gid)


def become(account: Account) -> None:
    """Give up root for good: take an account's rights, with its groups, home and umask.

    Raises:
        ConfigError: this root may not change its user, or the account may not run this program.
    """
    if account.uid == os.geteuid():
        return
    try:
        groups = os.getgrouplist(account.name, account.gid)
        os.setgroups(groups)
        os.setresgid(account.gid, account.gid, account.gid)
        os.setresuid(account.uid, account.uid, account.uid)
    except PermissionError as error:
        raise ConfigError(
            f"this root may not become user {account.name}, whom the landing belongs to "
            f"({error.strerror}); run the command as that user"
        ) from None
    os.environ.update(HOME=account.home, USER=account.name, LOGNAME=account.name)
    os.umask(_UMASK)
    for path in map(Path, (sys.executable, os.path.realpath(sys.executable), gaussdecode.__file__)):
        if not os.access(path, os.R_OK):
            raise ConfigError(
                f"user {account.name}, whom the landing belongs to, may not use {path}: "
                f"{rights(obstacle(path))}; install gaussdecode where every user may read it, such as "
                "/opt/gaussdecode"
            )
