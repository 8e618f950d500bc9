"""A disk that takes everything and makes nothing durable, until it goes on; or takes it slowly."""

import subprocess
from pathlib import Path
from typing import Final

_SHIM: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* write to a Parquet file takes half a second while the file SLOW exists */
ssize_t write(int fd, const void *bytes, size_t count)
{
    ssize_t (*real)(int, const void *, size_t) =
        (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    const char *slow = getenv("SLOW");
    if (slow && access(slow, F_OK) == 0) {
        char name[32], path[4096] = "";
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        if (readlink(name, path, sizeof path - 1) > 0 && strstr(path, "parquet"))
            usleep(500000);
    }
    return real(fd, bytes, count);
}
"""


class StillDisk:
    """For the processes that get its environment.

    Args:
        directory: gets the library that stands before the C library's, and a file while it stands
            or is slow.

    Attributes:
        environment: of a process that is to have this disk.
    """

    def __init__(self, directory: Path) -> None:
        source, library = directory / "still.c", directory / "still.so"
        self._still, self._slow = directory / "still", directory / "slow"
        source.write_text(_SHIM)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "STILL": str(self._still)}
        self.environment["SLOW"] = str(self._slow)

    def stand(self) -> None:
        """From now on no fsync returns."""
        self._still.touch()

    def slow_down(self) -> None:
        """From now on each write to a Parquet file takes long, and no CPU time."""
        self._slow.touch()

    def go_on(self) -> None:
        """All return now."""
        self._still.unlink(missing_ok=True)
        self._slow.unlink(missing_ok=True)
