"""Name the owner and mode of a file that this process may not use, for error messages.

Given the path of a file that was refused. Reads the attributes of the file and of the directories above it,
and opens nothing.
"""

import grp
import os
import pwd
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

from gaussdecode.errors import AccessError

_ACCESS_LIST: Final = "system.posix_acl_access"


def refused(path: str | os.PathLike[str], error: PermissionError) -> AccessError:
    """The error of a file that may not be read, written or entered, with what stands in the way."""
    found = obstacle(Path(path))
    return AccessError(
        f"{os.fspath(path)}: {error.strerror} for user {user_name(os.geteuid())}: {rights(found)}"
    )


def is_there(path: Path) -> bool:
    """Whether there is such a file.

    Raises:
        AccessError: this user may not know.
    """
    try:
        return path.exists()
    except PermissionError as error:
        raise refused(path, error) from None


def rights(path: Path) -> str:
    """Owner, group and mode of a file, in words."""
    try:
        facts = path.lstat()
    except OSError:
        return f"{path} cannot be looked at"
    return (
        f"{path} belongs to {user_name(facts.st_uid)}:{group_name(facts.st_gid)}, "
        f"mode {stat.S_IMODE(facts.st_mode):04o}"
    )


def user_name(uid: int) -> str:
    """Name of a user; the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    """Name of a group; the number where it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def obstacle_for(path: Path, uid: int, groups: Collection[int]) -> Path | None:
    """What keeps an account from reading a file, by owner and mode; None if nothing is known to.

    An access list is not read: what has one is taken for allowed.

    Args:
        path: path of the file.
        uid: number of the user.
        groups: numbers of its groups.
    """
    path = path.absolute()
    for place in (*reversed(path.parents), path):
        try:
            facts = place.stat()
        except OSError:
            return None  # it is missing, or hidden from us
        wanted = stat.S_IROTH if place == path else stat.S_IXOTH
        wanted <<= 6 if facts.st_uid == uid else 3 if facts.st_gid in groups else 0
        if uid != 0 and not facts.st_mode & wanted and _ACCESS_LIST not in os.listxattr(place):
            return place
    return None


def obstacle(path: Path) -> Path:
    """What refuses: the first directory that may not be entered, else the file or its directory."""
    path = path.absolute()
    for place in (*reversed(path.parents), path):
        try:
            place.lstat()
        except OSError:
            return place.parent
    return path.parent if os.access(path, os.R_OK | os.W_OK) else path
