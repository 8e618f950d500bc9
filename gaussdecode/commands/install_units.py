"""Install the systemd unit, the target, the account and the directories.

Writes below PREFIX: systemd/system/gaussdecode@.service and gaussdecode.target,
sysusers.d/gaussdecode.conf and tmpfiles.d/gaussdecode.conf. The unit starts the program that
runs this command. Existing files that say something else are left, unless
--force; what differs on this machine belongs in a drop-in (systemctl edit gaussdecode@SLOT).
Starts and enables nothing: it prints the commands that do.

Examples:
  gaussdecode install-units
  gaussdecode install-units --force                        after an upgrade
  gaussdecode install-units --prefix /usr/lib --destdir build/root    for a package
"""

import argparse
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

from gaussdecode.errors import EX_OK, ConfigError

_PLACES: Final = {
    "gaussdecode@.service": "systemd/system/gaussdecode@.service",
    "gaussdecode.target": "systemd/system/gaussdecode.target",
    "gaussdecode.sysusers": "sysusers.d/gaussdecode.conf",
    "gaussdecode.tmpfiles": "tmpfiles.d/gaussdecode.conf",
}
_PROGRAM: Final = re.compile(r"^ExecStart=\S+", re.MULTILINE)
_PLAIN: Final = re.compile(r"/[A-Za-z0-9/._+-]+")
_HIDDEN: Final = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")  # noqa: S108 - by the unit
_MODE: Final = 0o644


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--prefix",
        type=Path,
        default=Path("/etc"),
        help="/etc (default) or, for packages, /usr/lib",
    )
    parser.add_argument(
        "--destdir", type=Path, default=Path("/"), help="directory that stands for / (default: /)"
    )
    parser.add_argument("--program", type=Path, help="what the unit starts (default: this program)")
    parser.add_argument("--force", action="store_true", help="replace files that differ")


def execute(args: argparse.Namespace) -> int:
    """Write the files, and say what comes next."""
    program = str(args.program or _this_program())
    if not _PLAIN.fullmatch(program):
        raise ConfigError(
            f"install-units: {program!r} cannot stand in a unit; name the program by an absolute "
            "path of letters, digits and ._+- with --program"
        )
    base = args.destdir / args.prefix.relative_to(args.prefix.anchor)
    contents = dict(_contents(program))
    if not args.force:
        _refuse_changed(base, contents)
    for place, content in contents.items():
        print(f"{_write(base / place, content)} {base / place}")
    _print_next(program, is_here=args.destdir == Path("/"))
    return EX_OK


def _this_program() -> Path:
    """The installed program of this environment.

    Raises:
        ConfigError: there is none.
    """
    program = Path(sysconfig.get_path("scripts"), "gaussdecode")
    if not program.exists():
        raise ConfigError(f"install-units: there is no {program}; name the program with --program")
    return program


def _contents(program: str) -> Iterator[tuple[str, bytes]]:
    units = files("gaussdecode") / "units"
    for name, place in _PLACES.items():
        text = (units / name).read_text()
        if name.endswith(".service"):
            text = _PROGRAM.sub(f"ExecStart={program}", text, count=1)
        yield place, text.encode()


def _refuse_changed(base: Path, contents: dict[str, bytes]) -> None:
    """See that nothing is overwritten unasked.

    Raises:
        ConfigError: something would be; names all of it.
    """
    changed = [
        str(base / place)
        for place, content in contents.items()
        if (base / place).exists() and (base / place).read_bytes() != content
    ]
    if changed:
        raise ConfigError(
            f"install-units: {', '.join(changed)}: installed with other content; move what you "
            "changed to a drop-in, then --force"
        )


def _write(path: Path, content: bytes) -> str:
    """Write a file whole or not at all; gives what was done.

    Raises:
        ConfigError: it cannot be written.
    """
    if path.exists() and path.read_bytes() == content:
        return "unchanged"
    unfinished = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(content)
        unfinished.chmod(_MODE)
        os.replace(unfinished, path)
    except OSError as error:
        raise ConfigError(
            f"install-units: {path} cannot be written: {error.strerror}; run it as root, or name "
            "another --destdir"
        ) from error
    return "written  "


def _print_next(program: str, *, is_here: bool) -> None:
    if program.startswith(_HIDDEN):
        print(
            f"warning: the unit hides {program} from the daemon (ProtectHome, PrivateTmp); install "
            "gaussdecode elsewhere, for example below /opt",
            file=sys.stderr,
        )
    lines = [
        "systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload",
        "# for each slot: /etc/gaussdecode/SLOT.yaml (root:gaussdecode, 0640), SLOT.password (0600)",
        f"{program} check /etc/gaussdecode/SLOT.yaml",
        f"{program} slot create /etc/gaussdecode/SLOT.yaml",
        "systemctl enable --now gaussdecode@SLOT",
        "# once, so that all enabled slots start with the machine:",
        "systemctl enable --now gaussdecode.target",
    ]
    print("next:" if is_here else "next, on the machine:")
    print("\n".join(f"  {line}" for line in lines))
