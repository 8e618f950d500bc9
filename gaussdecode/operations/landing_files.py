"""Open the files of a landing for a command, beside the daemon or without one."""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from gaussdecode.land.disk import Disk
from gaussdecode.land.files import Files
from gaussdecode.land.layout import Layout, read_layout
from gaussdecode.land.space import SpaceWait


@contextlib.contextmanager
def opened(root: Path) -> Iterator[Disk]:
    """The files below a root, for somebody who does not wait for room on the disk.

    Raises:
        ConfigError: there is no such directory, or it may not be read.
    """
    files = Files(root)
    try:
        yield Disk(files, SpaceWait(should_stop=lambda: True), secrets.token_hex(8))
    finally:
        files.close()


def layout_at(root: Path) -> Layout | None:
    """The layout of the landing at a root; None where there is no landing."""
    if not root.is_dir():
        return None
    with opened(root) as disk:
        return read_layout(disk)
