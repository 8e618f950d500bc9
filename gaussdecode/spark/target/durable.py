"""Write files and names durably before anything refers to them, on a disk or an object store."""

import io
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from gaussdecode.errors import DiskError
from gaussdecode.spark.log.place import ObjectPath, Place, put_new
from gaussdecode.spark.target.failpoint import Step, reach


def write_file(write: Callable[[BinaryIO], None], root: Place, name: str) -> tuple[str, int]:
    """Write a durable file.

    Args:
        write: writes its content.
        root: directory of the table.
        name: path relative to `root`; never used again.

    Returns:
        Its path relative to `root`, and its size.
    """
    path = root / name
    if isinstance(path, ObjectPath):
        held = io.BytesIO()
        write(held)
        path.store.put_new(path.path, held.getvalue())
        return name, held.tell()
    make_directory(path.parent)
    try:
        with path.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            return name, file.tell()
    except OSError as error:
        raise DiskError(f"{path} cannot be written: {error.strerror}") from error


def make_directory(path: Place) -> None:
    """Create a directory and its parents durably; a store has none."""
    if isinstance(path, ObjectPath) or path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def put_file(path: Place, content: bytes) -> bool:
    """Create a file with its content in one step; False if the name exists."""
    return _put(path, content) if isinstance(path, ObjectPath) else _link(path, content)


def _put(path: ObjectPath, content: bytes) -> bool:
    reach(Step.MANIFEST_WRITTEN)
    is_first = put_new(path, content)
    reach(Step.MANIFEST_LINKED)
    reach(Step.MANIFEST_DURABLE)
    return is_first


def _link(path: Path, content: bytes) -> bool:
    hidden = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with hidden.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        reach(Step.MANIFEST_WRITTEN)
        os.link(hidden, path)
        reach(Step.MANIFEST_LINKED)
        sync_directory(path.parent)
        reach(Step.MANIFEST_DURABLE)
    except FileExistsError:
        return False
    except OSError as error:
        raise DiskError(f"{path} cannot be committed: {error.strerror}") from error
    finally:
        hidden.unlink(missing_ok=True)
    return True
