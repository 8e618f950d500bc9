"""Install the systemd units, the target, the account, the directories, and examples.

Writes below PREFIX: systemd/system/gaussdecode@.service, gaussdecode.target,
gaussdecode-fleet.service, gaussdecode-apply@.service and gaussdecode-serve@.service, sysusers.d/gaussdecode.conf and
tmpfiles.d/gaussdecode.conf; below SHARE: example configurations, rules and configuration for
Prometheus, a dashboard for Grafana. The units start the program that runs this command. Existing files
with other content are kept, unless --force. Put host-specific settings in a drop-in
(systemctl edit gaussdecode@SLOT). The command starts and enables nothing, and touches no configuration:
it prints the commands that do.

Examples:
  gaussdecode install-units
  gaussdecode install-units --dry-run                      show what it would write
  gaussdecode install-units --force                        after an upgrade
  gaussdecode install-units --prefix /usr/lib --share /usr/share/gaussdecode --destdir build/root
"""

import argparse
import enum
import os
import re
import stat
import sysconfig
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Final

import gaussdecode
from gaussdecode.errors import EX_OK, ConfigError
from gaussdecode.host.access import rights

_PLACES: Final = {
    "gaussdecode@.service": "systemd/system/gaussdecode@.service",
    "gaussdecode.target": "systemd/system/gaussdecode.target",
    "gaussdecode-fleet.service": "systemd/system/gaussdecode-fleet.service",
    "gaussdecode-apply@.service": "systemd/system/gaussdecode-apply@.service",
    "gaussdecode-serve@.service": "systemd/system/gaussdecode-serve@.service",
    "gaussdecode.sysusers": "sysusers.d/gaussdecode.conf",
    "gaussdecode.tmpfiles": "tmpfiles.d/gaussdecode.conf",
}
_SHARED: Final = {
    "example.yaml": "example.yaml",
    "gaussdb.example.yaml": "gaussdb.example.yaml",
    "small.yaml": "small.yaml",
    "sources.yaml": "sources.yaml",
    "gaussdecode.rules.yml": "prometheus/gaussdecode.rules.yml",
    "prometheus.yml": "prometheus/prometheus.yml",
    "gaussdecode.json": "grafana/gaussdecode.json",
}
_PROGRAM: Final = re.compile(r"^(Exec(?:Start|Reload))=\S+", re.MULTILINE)
_PLAIN: Final = re.compile(r"/[A-Za-z0-9/._+-]+")
_HIDDEN: Final = ("/home/", "/root/", "/run/user/", "/tmp/", "/var/tmp/")  # noqa: S108 - by the unit
_MODE: Final = 0o644
_LONGEST_LINE: Final = 4096  # that names an interpreter
_ADVICE: Final = (
    "install gaussdecode below /opt, with an interpreter of the system's: "
    "/usr/bin/python3 -m venv /opt/gaussdecode"
)


class _State(enum.Enum):
    """State of an installed file."""

    SAME = enum.auto()
    OTHER = enum.auto()
    MISSING = enum.auto()


_SAID: Final = {
    False: {_State.SAME: "unchanged", _State.OTHER: "replaced ", _State.MISSING: "written  "},
    True: {
        _State.SAME: "unchanged    ",
        _State.OTHER: "would replace",
        _State.MISSING: "would write  ",
    },
}
"""Words for the states, by whether --dry-run is given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--prefix",
        type=Path,
        default=Path("/etc"),
        help="/etc (default) or, for packages, /usr/lib",
    )
    parser.add_argument(
        "--destdir",
        type=Path,
        default=Path("/"),
        help="root directory to install into (default: /)",
    )
    parser.add_argument(
        "--share",
        type=Path,
        default=Path("/usr/local/share/gaussdecode"),
        help="directory of examples: /usr/local/share/gaussdecode (default) or, for packages, another",
    )
    parser.add_argument(
        "--program", type=Path, help="program that the unit starts (default: this one)"
    )
    parser.add_argument("--force", action="store_true", help="replace files that differ")
    parser.add_argument(
        "--dry-run", action="store_true", help="print what it would do, and change nothing"
    )


def execute(args: argparse.Namespace) -> int:
    """Write the files, and print the next steps."""
    program = str(args.program or _this_program())
    if not _PLAIN.fullmatch(program):
        raise ConfigError(
            f"install-units: {program!r} cannot stand in a unit; name the program by an absolute "
            "path of letters, digits and ._+- with --program"
        )
    _refuse_unreachable(Path(program), is_ours=args.program is None)
    prefix, share = (_below(args.destdir, path) for path in (args.prefix, args.share))
    contents = {prefix / place: content for place, content in _units(program)}
    contents |= {share / place: content for place, content in _examples()}
    states = {path: _state(path, content) for path, content in contents.items()}
    if not args.force:
        _refuse_changed(states)
    for path, content in contents.items():
        if not args.dry_run and states[path] is not _State.SAME:
            _write(path, content)
        print(f"{_SAID[args.dry_run][states[path]]} {path}")
    had_unit = states[prefix / _PLACES["gaussdecode@.service"]] is not _State.MISSING
    if not args.dry_run and args.force and had_unit:
        print("next: systemctl daemon-reload")
    elif not args.dry_run:
        _print_next(program, args.share, is_here=args.destdir == Path("/"))
    return EX_OK


def _below(destdir: Path, path: Path) -> Path:
    return destdir / path.relative_to(path.anchor)


def _refuse_unreachable(program: Path, *, is_ours: bool) -> None:
    """Check that the daemon can reach the program: the unit hides homes and temporary directories.

    Raises:
        ConfigError: the daemon cannot use the program, its interpreter or the package there.
    """
    used = [program, *_interpreters(program)]
    if is_ours:
        used.append(Path(gaussdecode.__file__))
    for path in (seen for each in used for seen in (each, each.resolve())):
        if str(path).startswith(_HIDDEN):
            raise ConfigError(
                f"install-units: {path} is hidden from the daemon (ProtectHome, PrivateTmp), which systemd "
                f"would try to start for ever (203/EXEC); {_ADVICE}"
            )
        closed = next((place for place in path.parents if _is_closed(place)), None)
        if closed is not None:
            raise ConfigError(
                f"install-units: the daemon's account may not use {path}: {rights(closed)}; {_ADVICE}"
            )


def _interpreters(program: Path) -> Iterator[Path]:
    """Interpreters of a script: the one it names, and the one that its virtual environment is made from."""
    try:
        with program.open("rb") as file:
            line = file.readline(_LONGEST_LINE)
    except OSError:
        return  # it is not here yet: a package is being made
    if line.startswith(b"#!"):
        yield Path(os.fsdecode(line[2:].split()[0]))


def _is_closed(directory: Path) -> bool:
    try:
        return not directory.stat().st_mode & stat.S_IXOTH
    except OSError:
        return False


def _this_program() -> Path:
    """The installed program of this environment.

    Raises:
        ConfigError: it is not there.
    """
    program = Path(sysconfig.get_path("scripts"), "gaussdecode")
    if not program.exists():
        raise ConfigError(f"install-units: there is no {program}; name the program with --program")
    return program


def _units(program: str) -> Iterator[tuple[str, bytes]]:
    units = files("gaussdecode") / "units"
    for name, place in _PLACES.items():
        text = (units / name).read_text()
        if name.endswith(".service"):
            text = _PROGRAM.sub(rf"\g<1>={program}", text)
        yield place, text.encode()


def _examples() -> Iterator[tuple[str, bytes]]:
    share = files("gaussdecode") / "share"
    for name, place in _SHARED.items():
        yield place, (share / name).read_bytes()


def _state(path: Path, content: bytes) -> _State:
    """Compare an existing file with the wanted content.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        return _State.SAME if path.read_bytes() == content else _State.OTHER
    except FileNotFoundError:
        return _State.MISSING
    except OSError as error:
        raise _refused(path, error) from error


def _refuse_changed(states: Mapping[Path, _State]) -> None:
    """Refuse to overwrite changed files.

    Raises:
        ConfigError: files would be overwritten; the text names them all.
    """
    changed = [str(path) for path, state in states.items() if state is _State.OTHER]
    if changed:
        raise ConfigError(
            f"install-units: {', '.join(changed)}: installed with other content; move what you "
            "changed to a drop-in, then --force"
        )


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        ConfigError: the file cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(content)
        unfinished.chmod(_MODE)
        os.replace(unfinished, path)
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"install-units: {path} cannot be written: {error.strerror}; run it as root, or name "
        "another --destdir, --prefix or --share"
    )


def _print_next(program: str, share: Path, *, is_here: bool) -> None:
    lines = [
        "systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload",
        "# for each slot, SLOT.yaml (root:gaussdecode, 0640), SLOT.password (root, 0600):",
        f"install -m 0640 -g gaussdecode {share}/example.yaml /etc/gaussdecode/SLOT.yaml",
        "install -m 0600 /dev/stdin /etc/gaussdecode/SLOT.password",
        f"{program} check /etc/gaussdecode/SLOT.yaml",
        f"{program} slot create /etc/gaussdecode/SLOT.yaml",
        "systemctl enable --now gaussdecode@SLOT  # now, and whenever the machine starts",
        "systemctl enable --now gaussdecode-fleet  # a page over all slots, if you like",
        "systemctl enable --now gaussdecode-apply@SLOT  # tables of it, with gaussdecode[spark]",
        "systemctl enable --now gaussdecode-serve@SLOT  # what has landed, for clients of replication",
        f"# alerts: rule_files of Prometheus, {share}/prometheus/gaussdecode.rules.yml",
        f"# dashboard: Grafana imports {share}/grafana/gaussdecode.json",
    ]
    print("next:" if is_here else "next, on the machine:")
    print("\n".join(f"  {line}" for line in lines))
