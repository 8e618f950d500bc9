"""Report the state of the daemon to systemd by sd_notify.

The caller gives the environment that systemd made, and a clock. No call fails or blocks: outside
systemd every call does nothing. The watchdog is fed only while the stages make progress, so systemd
restarts a daemon that hangs.
"""

import os
import socket
from collections.abc import Callable, Mapping
from typing import Final

_FEEDS_PER_TIMEOUT: Final = 3
_MICROSECOND: Final = 1e-6
_MAX_STATUS: Final = 200  # characters; arbitrary


class Notifier:
    """One process's voice to systemd.

    Args:
        path: ``$NOTIFY_SOCKET``; a leading ``@`` means an abstract socket; empty for none.
        watchdog_seconds: time after which systemd misses us, or None.
    """

    def __init__(self, path: str, watchdog_seconds: float | None = None) -> None:
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._interval = None if watchdog_seconds is None else watchdog_seconds / _FEEDS_PER_TIMEOUT
        self._next_feed = 0.0
        self._socket = None
        if self._address:
            flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            self._socket = socket.socket(socket.AF_UNIX, flags)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "Notifier":
        """Read $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID."""
        values = os.environ if environment is None else environment
        usec = values.get("WATCHDOG_USEC", "")
        is_ours = values.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        seconds = int(usec) * _MICROSECOND if usec.isdigit() and is_ours else None
        path = values.get("NOTIFY_SOCKET", "")
        return cls(path if path.startswith(("/", "@")) else "", seconds or None)

    def _send(self, *lines: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError:
            pass

    def ready(self, status: str) -> None:
        """Say that the daemon does its work from now on."""
        self._send("READY=1", _status(status))

    def status(self, status: str) -> None:
        """Set the line that ``systemctl status`` shows."""
        self._send(_status(status))

    def stopping(self, status: str) -> None:
        """Say that the daemon is ending on request."""
        self._send("STOPPING=1", _status(status))

    def extend(self, seconds: float) -> None:
        """Ask for more time to start or stop, from now."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(seconds / _MICROSECOND)}")

    def feed(self, now: float, is_alive: Callable[[], bool]) -> bool:
        """Feed the watchdog if it is time and the stages make progress.

        Args:
            now: seconds of a monotonic clock.
            is_alive: asked only when it is time.

        Returns:
            False when it was time and nothing was alive: the watchdog went unfed.
        """
        if self._interval is None or now < self._next_feed:
            return True
        if not is_alive():
            return False
        self._next_feed = now + self._interval
        self._send("WATCHDOG=1")
        return True

    def close(self) -> None:
        """Give the socket back."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _status(text: str) -> str:
    return "STATUS=" + " ".join(text.split())[:_MAX_STATUS]
