"""Files of Iceberg's own where the target's are: durable before they are named, on a disk and on a store.

Given to pyiceberg by name. With it a store is opened with the same settings as for all other files.
"""

import dataclasses
import io
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from gaussdecode.errors import LandingError
from gaussdecode.spark.log.place import ObjectPath, Place, place_of
from gaussdecode.spark.target.durable import make_directory, put_file

_STORES: Final[dict[str, ObjectPath]] = {}
"""By URL, stores that were opened with settings, which locations do not have."""


def location_of(place: Place) -> str:
    """A place as Iceberg writes it."""
    if isinstance(place, ObjectPath):
        _STORES[place.settings.url.rstrip("/")] = dataclasses.replace(place, path="")
        return str(place)
    return f"file://{place.absolute()}"


def _place(location: str) -> Place:
    """The other way round."""
    for url, root in _STORES.items():
        if location.startswith(f"{url}/"):
            return root / location.removeprefix(f"{url}/")
    if location.startswith("file:"):  # Java writes it with one slash
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return place_of(location)


class _Written(io.BytesIO):
    """A file that is there, whole, once it is closed."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()

    def close(self) -> None:
        """Make it durable.

        Raises:
            LandingError: the name is taken.
        """
        if self.closed:
            return
        content = self.getvalue()
        super().close()
        make_directory(self._place.parent)
        if not put_file(self._place, content):
            raise LandingError(f"{self._place} is there already; apply again")


class PlaceFile(InputFile, OutputFile):
    """One file."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._place = _place(location)

    def __len__(self) -> int:
        return len(self._place.read_bytes())

    def exists(self) -> bool:
        """Whether it is there."""
        return self._place.exists()

    def open(self, seekable: bool = True) -> InputStream:
        """Read it."""
        return io.BytesIO(self._place.read_bytes())

    def create(self, overwrite: bool = False) -> OutputStream:
        """Write it; names are never used twice."""
        return _Written(self._place)

    def to_input_file(self) -> InputFile:
        """It as one that is read."""
        return self


class PlaceIO(FileIO):
    """All of them."""

    def new_input(self, location: str) -> InputFile:
        """See `FileIO`."""
        return PlaceFile(location)

    def new_output(self, location: str) -> OutputFile:
        """See `FileIO`."""
        return PlaceFile(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See `FileIO`."""
        _place(location if isinstance(location, str) else location.location).unlink(missing_ok=True)
