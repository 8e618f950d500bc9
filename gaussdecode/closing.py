"""Let an object that is closed be used by ``with``."""

import abc
from typing import Self


class Closing(abc.ABC):
    """Is closed at the end of ``with``, whatever happened."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
