"""Tell how much memory this process may use."""

import os
from collections.abc import Iterator
from pathlib import Path


def process_memory_bytes(
    groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> int | None:
    """Memory this process may use: the machine's or its control groups', whichever is less.

    Args:
        groups: mount point of the control groups.
        own: says in which of them this process is.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limits += [int(text) for text in _group_limits(groups, own) if text.isdigit()]
    return min((limit for limit in limits if limit > 0), default=None)


def _group_limits(groups: Path, own: Path) -> Iterator[str]:
    """``memory.max`` of this process's control group and of all above it."""
    path = _text(own).rpartition("::")[2].strip().strip("/")
    place = groups / path
    while place.is_relative_to(groups):
        yield _text(place / "memory.max").strip()
        place = place.parent


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
