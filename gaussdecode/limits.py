"""Name the system limit that this process has reached: file descriptors, processes, memory.

Given the error that the limit caused.
"""

import errno
import os
import resource
from typing import Final

from gaussdecode.errors import ConfigError, LimitError

_FILES: Final = "the limit on file descriptors (LimitNOFILE= of a unit, `ulimit -n` of a shell)"
_MEMORY: Final = (
    "the limits on memory (MemoryMax= of a unit or control group, `ulimit -v` of a shell), or give the "
    "machine more"
)
_PROCESSES: Final = (
    "the limit on processes and threads (TasksMax= of a unit, pids.max of a control group, `ulimit -u` of "
    "a shell)"
)
_REMEDIES: Final = {
    errno.EMFILE: f"raise {_FILES}",
    errno.ENFILE: "raise fs.file-max (sysctl)",
    errno.ENOMEM: f"raise {_MEMORY}",
    errno.EAGAIN: f"raise {_PROCESSES}",
}
_TEXTS: Final = (  # of the loader of libraries and of Python, which give no number
    ("Too many open files", errno.EMFILE),
    ("failed to map segment", errno.ENOMEM),
    ("cannot allocate memory", errno.ENOMEM),
    ("can't start new thread", errno.EAGAIN),
)


def reached(error: BaseException) -> LimitError | None:
    """The limit that an error is of, and what to raise; None where it is of none."""
    number = _number(error)
    if number is None:
        return None
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return LimitError(f"{said or 'no memory left'}: {_REMEDIES[number]}{_now(number)}")


def _number(error: BaseException) -> int | None:
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, OSError) and error.errno is not None:
        is_limit = error.strerror == os.strerror(error.errno)  # not a pipe that would block
        return error.errno if error.errno in _REMEDIES and is_limit else None
    if isinstance(error, OSError | ImportError | RuntimeError):
        text = str(error).lower()
        return next((number for part, number in _TEXTS if part.lower() in text), None)
    return None


def _now(number: int) -> str:
    """How much it is now, where one number says that."""
    if number != errno.EMFILE:
        return ""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"; it is {soft}"


def allow_descriptors(needed: int) -> None:
    """See that this process and its children may have so many file descriptors each.

    The soft limit is raised, as any process may.

    Raises:
        ConfigError: the hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in range(needed):
        if hard in range(needed):
            raise ConfigError(
                f"this process may have {hard} file descriptors, and {needed} are needed with this "
                f"configuration: raise {_FILES}"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
