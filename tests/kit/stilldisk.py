"""A disk that takes everything and makes nothing durable, until it goes on."""

import subprocess
from pathlib import Path
from typing import Final

_SHIM: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

/* fsync does not return while the file $STILL exists */
int fsync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    const char *still = getenv("STILL");
    while (still && access(still, F_OK) == 0)
        usleep(20000);
    return real(fd);
}
"""


class StillDisk:
    """For the processes that get its environment.

    Args:
        directory: gets the library that stands before the C library's, and a file while it stands.

    Attributes:
        environment: of a process that is to have this disk.
    """

    def __init__(self, directory: Path) -> None:
        source, library = directory / "still.c", directory / "still.so"
        self._still = directory / "still"
        source.write_text(_SHIM)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "STILL": str(self._still)}

    def stand(self) -> None:
        """From now on no fsync returns."""
        self._still.touch()

    def go_on(self) -> None:
        """All return now."""
        self._still.unlink()
