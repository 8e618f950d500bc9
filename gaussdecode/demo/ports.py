"""Find a TCP port for a server that is started a moment later."""

import random
import socket
from pathlib import Path
from typing import Final

_EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT: Final = 10240  # below are the ports of well-known servers
_USUAL_EPHEMERAL: Final = 32768
_TRIES: Final = 200
_given: set[int] = set()


def free_port() -> int:
    """Find a TCP port that nobody uses, outside of those that outgoing connections get.

    A port that the kernel chooses for ``bind`` comes from the same range as the local ports
    of connections, so that any connection of the machine may have taken it before the server
    is there, or while it restarts. For the same reason a process is given no port twice.

    Raises:
        OSError: every port that was tried is in use.
    """
    end = _ephemeral_start()
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST_PORT, end) if end > _LOWEST_PORT else 0
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found: int = probe.getsockname()[1]
        if found not in _given:
            _given.add(found)
            return found
    raise OSError(f"no free TCP port on 127.0.0.1 among {_TRIES} from {_LOWEST_PORT} to {end - 1}")


def _ephemeral_start() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_EPHEMERAL
