"""Tests for `gaussdecode.commands.install_units`: what systemd makes of what it writes."""

import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from kit.commands import Run

from gaussdecode.errors import EX_CONFIG, EX_OK

UNITS = Path(__file__).parents[2] / "systemd"
CONFIG = UNITS.with_name("config")
BUILD = "/dev/shm"
"""Where the unit would find a program, and any user may make a directory."""
SYSTEM = "etc/systemd/system"


PROGRAM = Path("/usr/bin/true")
"""Something to start, where the unit would find it."""


SHARED = (
    "example.yaml",
    "gaussdb.example.yaml",
    "small.yaml",
    "sources.yaml",
    "prometheus/gaussdecode.rules.yml",
    "prometheus/prometheus.yml",
    "grafana/gaussdecode.json",
)
"""What operators take from config/."""


def files_below(directory: Path) -> set[str]:
    """Paths of all files and links."""
    found = (path for path in directory.rglob("*") if path.is_symlink() or path.is_file())
    return {str(path.relative_to(directory)) for path in found}


def systemctl(root: Path, *arguments: str) -> None:
    """Let systemctl work on the files of another root."""
    subprocess.run(["systemctl", f"--root={root}", *arguments], check=True, capture_output=True)


def test_all_of_it_is_written(tmp_path: Path, run: Run) -> None:
    """Unit, target, account and directories, where a package or an administrator has them."""
    places = (("etc", "usr/local/share/gaussdecode"), ("usr/lib", "usr/share/gaussdecode"))
    for prefix, share in places:
        root = tmp_path / prefix.replace("/", "-")
        done = run(
            "install-units", "--destdir", str(root), "--prefix", f"/{prefix}", "--share", f"/{share}",
            "--program", str(PROGRAM),
        )  # fmt: skip
        assert done.status == EX_OK, done.err
        assert files_below(root) == {
            f"{prefix}/systemd/system/gaussdecode@.service",
            f"{prefix}/systemd/system/gaussdecode.target",
            f"{prefix}/systemd/system/gaussdecode-fleet.service",
            f"{prefix}/systemd/system/gaussdecode-apply@.service",
            f"{prefix}/systemd/system/gaussdecode-serve@.service",
            f"{prefix}/sysusers.d/gaussdecode.conf",
            f"{prefix}/tmpfiles.d/gaussdecode.conf",
            *(f"{share}/{name}" for name in SHARED),
        }
        for name in SHARED:
            given = root / share / name
            assert given.read_bytes() == (CONFIG / name).read_bytes()
            assert given.stat().st_mode & 0o777 == 0o644
            assert f" {given}\n" in done.out
        assert f"/{share}/prometheus/gaussdecode.rules.yml\n" in done.out
        assert "systemctl enable --now gaussdecode@SLOT" in done.out
        unit = (root / prefix / "systemd/system/gaussdecode@.service").read_text()
        assert f"\nExecStart={PROGRAM} run /etc/gaussdecode/%i.yaml\n" in unit
        assert unit.count("ExecStart=") == (UNITS / "gaussdecode@.service").read_text().count(
            "ExecStart="
        )
        target = root / prefix / "systemd/system/gaussdecode.target"
        assert target.read_bytes() == (UNITS / "gaussdecode.target").read_bytes()
        assert target.stat().st_mode & 0o777 == 0o644


def test_what_an_administrator_changed_is_left(tmp_path: Path, run: Run) -> None:
    """The same again changes nothing; something else is replaced only with --force."""
    call = ("install-units", "--destdir", str(tmp_path), "--program", str(PROGRAM))
    assert run(*call).status == EX_OK
    assert run(*call).out.count("unchanged ") == 7 + len(SHARED)
    target = tmp_path / SYSTEM / "gaussdecode.target"
    target.write_text("[Unit]\nDescription=mine\n")
    refused = run(*call)
    assert refused.status == EX_CONFIG
    assert str(target) in refused.err
    assert target.read_text().endswith("mine\n")
    example = tmp_path / "usr/local/share/gaussdecode/example.yaml"
    example.unlink()
    told = run(*call, "--force", "--dry-run")
    assert told.status == EX_OK
    assert f"would replace {target}\n" in told.out
    assert f"would write   {example}\n" in told.out
    assert target.read_text().endswith("mine\n")
    assert not example.exists()
    upgraded = run(*call, "--force").out
    assert f"replaced  {target}\n" in upgraded
    assert "slot create" not in upgraded, "there are slots"
    assert upgraded.endswith("next: systemctl daemon-reload\n")
    assert "mine" not in target.read_text()
    assert example.exists()


def test_what_cannot_work_is_said(tmp_path: Path, run: Run) -> None:
    """A program the unit could not start, one it hides, a place that cannot be written."""
    spaced = run("install-units", "--destdir", str(tmp_path), "--program", "/opt/a b/gaussdecode")
    assert spaced.status == EX_CONFIG
    assert "--program" in spaced.err
    file = tmp_path / "file"
    file.touch()
    blocked = run("install-units", "--destdir", str(file), "--program", "/opt/gaussdecode")
    assert blocked.status == EX_CONFIG
    assert "cannot be written: Not a directory" in blocked.err
    taken = tmp_path / "usr/local/share/gaussdecode/small.yaml"
    taken.mkdir(parents=True)
    other = run("install-units", "--destdir", str(tmp_path), "--program", str(PROGRAM))
    assert other.status == EX_CONFIG
    assert f"{taken} cannot be written: Is a directory" in other.err
    assert not (tmp_path / "etc").exists(), "all is looked at before anything is written"


@pytest.mark.parametrize("place", ["/home/a", "/root", "/run/user/7", "/tmp", "/var/tmp"])
def test_program_that_the_unit_hides_is_refused(tmp_path: Path, run: Run, place: str) -> None:
    """Itself, or what it runs with: systemd would try to start it for ever."""
    to = ("install-units", "--destdir", str(tmp_path / "root"), "--program")
    hidden = run(*to, f"{place}/bin/gaussdecode")
    assert hidden.status == EX_CONFIG
    assert "ProtectHome" in hidden.err
    assert "/usr/bin/python3 -m venv /opt/gaussdecode" in hidden.err
    assert not (tmp_path / "root").exists()
    with tempfile.TemporaryDirectory(dir=BUILD) as name:
        Path(name).chmod(0o755)
        script = Path(name, "gaussdecode")
        script.write_text(f"#!{place}/bin/python\n")
        assert f"{place}/bin/python is hidden" in run(*to, str(script)).err
        Path(name, "python").symlink_to(f"{place}/bin/python3")
        script.write_text(f"#!{name}/python\n")
        assert f"{place}/bin/python3 is hidden" in run(*to, str(script)).err


def test_program_that_others_may_not_enter_is_refused(tmp_path: Path, run: Run) -> None:
    """The daemon's account is one of the others."""
    with tempfile.TemporaryDirectory(dir=BUILD) as name:
        done = run("install-units", "--destdir", str(tmp_path), "--program", f"{name}/gaussdecode")
        assert done.status == EX_CONFIG
        assert f"{name} belongs to" in done.err
        assert "mode 0700" in done.err


def test_systemd_accepts_what_is_installed(tmp_path: Path, run: Run) -> None:
    """Nothing to complain of in unit and target, as an instance, together."""
    run("install-units", "--destdir", str(tmp_path), "--program", str(PROGRAM))
    directory = tmp_path / SYSTEM
    for name in ("gaussdecode", "gaussdecode-apply"):
        (directory / f"{name}@orders.service").symlink_to(f"{name}@.service")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "gaussdecode@orders.service",
         "gaussdecode.target", "gaussdecode-fleet.service", "gaussdecode-apply@orders.service",
         "gaussdecode-serve@orders.service"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning", "SYSTEMD_UNIT_PATH": f"{directory}:"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_page_over_all_slots_may_do_little(tmp_path: Path, run: Run) -> None:
    """Its unit starts `top` of the same program, with no more rights than a slot's."""
    run("install-units", "--destdir", str(tmp_path), "--program", str(PROGRAM))
    unit = tmp_path / SYSTEM / "gaussdecode-fleet.service"
    assert (
        f"\nExecStart={PROGRAM} top --listen 127.0.0.1:19186 /etc/gaussdecode\n" in unit.read_text()
    )
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=12", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_slots_belong_to_one_target(tmp_path: Path, run: Run) -> None:
    """Enabled slots start with the target; disabling one leaves the others enabled."""
    run("install-units", "--destdir", str(tmp_path), "--program", str(PROGRAM))
    for unit in ("gaussdecode@orders", "gaussdecode@stock", "gaussdecode.target"):
        systemctl(tmp_path, "enable", unit)
    wants = {
        f"{SYSTEM}/gaussdecode.target.wants/gaussdecode@{s}.service" for s in ("orders", "stock")
    }
    boot = f"{SYSTEM}/multi-user.target.wants/gaussdecode.target"
    each = {
        f"{SYSTEM}/multi-user.target.wants/gaussdecode@{s}.service" for s in ("orders", "stock")
    }
    assert wants | each | {boot} <= files_below(tmp_path), "each starts with the machine by itself"
    systemctl(tmp_path, "disable", "gaussdecode@orders")
    left = files_below(tmp_path)
    assert boot in left
    assert {path for path in left if "target.wants/gaussdecode@" in path} == {
        f"{SYSTEM}/{by}.target.wants/gaussdecode@stock.service"
        for by in ("gaussdecode", "multi-user")
    }
    unit = (tmp_path / SYSTEM / "gaussdecode@.service").read_text()
    assert "\nPartOf=gaussdecode.target\n" in unit, "stop and restart of the target reach slots"
    programs = re.findall(r"^Exec(?:Start|Reload)=(\S+) (?:run|ctl) ", unit, re.MULTILINE)
    assert len(programs) == len(("ExecStart", "ExecReload"))
    assert len(set(programs)) == 1, "both are the installed program"
