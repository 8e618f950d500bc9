"""Let pyiceberg read and write its metadata files at the target, durably, on a disk or an object store.

pyiceberg loads this class by name. It opens a store with the same settings as all other files.
"""

import dataclasses
import io
from pathlib import Path
from typing import Final, Self

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from gaussdecode.errors import LandingError
from gaussdecode.spark.log.place import ObjectPath, Place, place_of
from gaussdecode.spark.target.durable import make_directory, put_file

_STORES: Final[dict[str, ObjectPath]] = {}
"""Stores that were opened with settings, by URL; locations do not hold settings."""


def location_of(place: Place) -> str:
    """Convert a place to an Iceberg location."""
    if isinstance(place, ObjectPath):
        _STORES[place.settings.url.rstrip("/")] = dataclasses.replace(place, path="")
        return str(place)
    return f"file://{place.absolute()}"


def _place(location: str) -> Place:
    """Convert an Iceberg location to a place."""
    for url, root in _STORES.items():
        if location.startswith(f"{url}/"):
            return root / location.removeprefix(f"{url}/")
    if location.startswith("file:"):  # Java writes it with one slash
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return place_of(location)


class _Written(io.BytesIO):
    """A file that becomes visible, whole, when it is closed."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_more: object) -> None:
        if kind is None:
            self.close()

    def close(self) -> None:
        """Make it durable.

        Raises:
            LandingError: a file of that name exists.
        """
        if self.closed:
            return
        content = self.getvalue()
        super().close()
        make_directory(self._place.parent)
        if not put_file(self._place, content):
            raise LandingError(f"{self._place} is there already; apply again")


class PlaceFile(InputFile, OutputFile):
    """One file, for reading or writing."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._place = _place(location)

    def __len__(self) -> int:
        return len(self._place.read_bytes())

    def exists(self) -> bool:
        """Whether the file exists."""
        return self._place.exists()

    def open(self, seekable: bool = True) -> InputStream:
        """Open it for reading."""
        return io.BytesIO(self._place.read_bytes())

    def create(self, overwrite: bool = False) -> OutputStream:
        """Open it for writing; names are never used twice."""
        return _Written(self._place)

    def to_input_file(self) -> InputFile:
        """The same file, for reading."""
        return self


class PlaceIO(FileIO):
    """Files below places."""

    def new_input(self, location: str) -> InputFile:
        """See `FileIO`."""
        return PlaceFile(location)

    def new_output(self, location: str) -> OutputFile:
        """See `FileIO`."""
        return PlaceFile(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See `FileIO`."""
        _place(location if isinstance(location, str) else location.location).unlink(missing_ok=True)
