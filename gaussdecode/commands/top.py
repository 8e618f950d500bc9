"""Live view of all slots on this host, worst first.

One line per configuration: severity (!! error, ! warning), slot, state of the daemon, data not yet
landed in bytes and in seconds, rows landed per second, durable position, length of the fullest read and
decode queue, memory of all processes, uptime, and the first problem. A daemon that does not answer has
a line too, with the reason. Below the table are all problems of the selected slot (arrow keys), with
commands to copy. q quits.

If the output is not a terminal, the table is printed once. The exit status is then that of `gaussdecode
status`: 0 when all is well, 69 when it is not. Colours respect NO_COLOR.

--listen serves the same as a page instead, and each daemon's own page below it, so that one tunnel
is enough: ssh -L 19186:127.0.0.1:19186 HOST. gaussdecode-fleet.service does this.

Examples:
  gaussdecode top
  gaussdecode top /etc/gaussdecode /srv/other/orders.yaml
  gaussdecode top --listen 127.0.0.1:19186
"""

import argparse
import http.client
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from gaussdecode.console.arguments import address, seconds
from gaussdecode.console.screen import Paint, frame, table_lines
from gaussdecode.console.signals import until_signal
from gaussdecode.console.terminal import taken
from gaussdecode.daemon.status.fleet import Member, render_fleet
from gaussdecode.daemon.status.guide import render_guide
from gaussdecode.daemon.status.http import Page, PageServer, html, record
from gaussdecode.errors import EX_OK, EX_UNAVAILABLE, ConfigError, SourceError
from gaussdecode.operations.ask_daemon import fetch
from gaussdecode.operations.fleet import DIRECTORY, Fleet
from gaussdecode.operations.owner import become, landing_owner

_POLL_SECONDS: Final = 0.2  # until a new size of the terminal is seen
_BACK: Final = b'<main>\n<nav id="back"><a id="all" href="/">All slots</a></nav>'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "config",
        type=Path,
        nargs="*",
        default=[DIRECTORY],
        help=f"configuration files, or directories of them (default: {DIRECTORY})",
    )
    parser.add_argument(
        "--every",
        type=seconds,
        default=2.0,
        metavar="SECONDS",
        help="seconds between two updates (default: 2)",
    )
    parser.add_argument(
        "--listen", type=address, metavar="HOST:PORT", help="serve a page at this loopback address"
    )


def execute(args: argparse.Namespace) -> int:
    """Show the table until stopped; once if the output is not a terminal."""
    fleet = Fleet(args.config)
    if args.listen is not None:
        return _serve(args, fleet)
    if sys.stdin.isatty() and sys.stdout.isatty():
        return _watch(fleet, args.every)
    members = fleet.look()
    print("\n".join(table_lines(members, None, Paint())))
    return EX_OK if all(member.is_well for member in members) else EX_UNAVAILABLE


# ---- on a terminal ----------------------------------------------------------------------


class _Looker:
    """Asks the daemons in a separate thread, so that a silent daemon does not delay a key.

    Args:
        fleet: daemons to ask.
        every: seconds between two rounds.
    """

    def __init__(self, fleet: Fleet, every: float) -> None:
        self._fleet = fleet
        self._every = every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="look", daemon=True)
        self.newest = self._read()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; a request in progress is abandoned."""
        self._stop.set()

    def _read(self) -> tuple[list[Member], str]:
        return self._fleet.look(), time.strftime("%H:%M:%S")

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.newest = self._read()
            except (ConfigError, OSError) as error:
                gone = Member.silent("-", "missing", f"{error}.", "Look at the directory.")
                self.newest = [gone], time.strftime("%H:%M:%S")


def _watch(fleet: Fleet, every: float) -> int:
    looker = _Looker(
        fleet, every
    )  # what is wrong with the arguments is said before the screen is taken
    paint = Paint(is_live=True, has_colour=not os.environ.get("NO_COLOR"))
    name = ""
    with until_signal() as stop, taken() as terminal:
        looker.start()
        while not stop.is_set():
            members, clock = looker.newest
            names = [member.name for member in members]
            chosen = names.index(name) if name in names else 0
            width, height = terminal.size
            terminal.show(frame(members, chosen, width, height, clock, paint))
            key = terminal.key(_POLL_SECONDS)
            if key == "q":
                break
            step = {"up": -1, "down": 1}.get(key or "", 0)
            if step:
                name = names[min(max(0, chosen + step), len(names) - 1)]
        looker.stop()
    return EX_OK


# ---- as a page --------------------------------------------------------------------------


def _serve(args: argparse.Namespace, fleet: Fleet) -> int:
    """Serve pages until a signal."""
    fleet.look()  # what is wrong with the arguments is said at once
    _give_up_root(fleet)
    server = PageServer("--listen", args.listen, _Pages(fleet).find)
    server.start()
    print(f"listening on http://{server.address}/", flush=True)
    with until_signal() as stop:
        stop.wait()
    server.close()
    return EX_OK


def _give_up_root(fleet: Fleet) -> None:
    """Give up root: the page needs only the rights of a landing's owner."""
    configs = fleet.configs()
    if os.geteuid() == 0 and configs:
        become(landing_owner(configs[0]))


class _Pages:
    """Finds the page for a path.

    Args:
        fleet: daemons to show.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._lock = threading.Lock()
        self._seen: tuple[float, list[Member]] = (float("-inf"), [])

    def find(self, path: str, _name: str | None) -> Callable[[], Page] | None:
        """See `PageServer`."""
        pages: dict[str, Callable[[], Page]] = {
            "/": self._all,
            "/status": self._status,
            "/alerts": lambda: html(render_guide()),
        }
        prefix, _, name = path.rpartition("/")
        return (lambda: self._one(unquote(name))) if prefix == "/slots" else pages.get(path)

    def _members(self) -> list[Member]:
        """The newest answers; the daemons are asked at most once a second, for any number of viewers."""
        with self._lock:
            if time.monotonic() - self._seen[0] > 1.0:
                self._seen = time.monotonic(), self._fleet.look()
            return self._seen[1]

    def _all(self) -> Page:
        return html(render_fleet(socket.gethostname(), self._members()))

    def _status(self) -> Page:
        return record({"slots": [_to_record(member) for member in self._members()]})

    def _one(self, name: str) -> Page:
        """A daemon's own page, under our policy, with a link back."""
        config = self._fleet.find(name)
        try:
            if config is not None:
                status, body = fetch(config, "/")
                if status == HTTPStatus.OK:
                    return html(body.replace(b"<main>", _BACK, 1))
        except (OSError, http.client.HTTPException, SourceError):
            pass
        return HTTPStatus.BAD_GATEWAY, "text/plain; charset=utf-8", b"no daemon answers; see /\n"


def _to_record(member: Member) -> dict[str, object]:
    return {
        "name": member.name,
        "state": member.state,
        "is_well": member.is_well,
        "causes": list(member.causes),
        "status": dict(member.record),
    }
