"""Tests for `gaussdecode.commands.install_units`: what systemd makes of what it writes."""

import os
import subprocess
from pathlib import Path

import pytest
from kit.commands import Run

from gaussdecode.errors import EX_CONFIG, EX_OK

UNITS = Path(__file__).parents[2] / "systemd"
SYSTEM = "etc/systemd/system"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Something to start."""
    path = tmp_path / "bin" / "gaussdecode"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def files_below(directory: Path) -> set[str]:
    """Paths of all files and links."""
    found = (path for path in directory.rglob("*") if path.is_symlink() or path.is_file())
    return {str(path.relative_to(directory)) for path in found}


def systemctl(root: Path, *arguments: str) -> None:
    """Let systemctl work on the files of another root."""
    subprocess.run(["systemctl", f"--root={root}", *arguments], check=True, capture_output=True)


def test_all_of_it_is_written(tmp_path: Path, run: Run, program: Path) -> None:
    """Unit, target, account and directories, where a package or an administrator has them."""
    for prefix in ("etc", "usr/lib"):
        root = tmp_path / prefix.replace("/", "-")
        done = run(
            "install-units", "--destdir", str(root), "--prefix", f"/{prefix}", "--program",
            str(program),
        )  # fmt: skip
        assert done.status == EX_OK, done.err
        assert files_below(root) == {
            f"{prefix}/systemd/system/gaussdecode@.service",
            f"{prefix}/systemd/system/gaussdecode.target",
            f"{prefix}/sysusers.d/gaussdecode.conf",
            f"{prefix}/tmpfiles.d/gaussdecode.conf",
        }
        assert "systemctl enable --now gaussdecode@SLOT" in done.out
        unit = (root / prefix / "systemd/system/gaussdecode@.service").read_text()
        assert f"\nExecStart={program} run /etc/gaussdecode/%i.yaml\n" in unit
        assert unit.count("ExecStart=") == (UNITS / "gaussdecode@.service").read_text().count(
            "ExecStart="
        )
        target = root / prefix / "systemd/system/gaussdecode.target"
        assert target.read_bytes() == (UNITS / "gaussdecode.target").read_bytes()
        assert target.stat().st_mode & 0o777 == 0o644


def test_what_an_administrator_changed_is_left(tmp_path: Path, run: Run, program: Path) -> None:
    """The same again changes nothing; something else is replaced only with --force."""
    call = ("install-units", "--destdir", str(tmp_path), "--program", str(program))
    assert run(*call).status == EX_OK
    assert run(*call).out.count("unchanged ") == 4
    target = tmp_path / SYSTEM / "gaussdecode.target"
    target.write_text("[Unit]\nDescription=mine\n")
    refused = run(*call)
    assert refused.status == EX_CONFIG
    assert str(target) in refused.err
    assert target.read_text().endswith("mine\n")
    assert run(*call, "--force").status == EX_OK
    assert "mine" not in target.read_text()


def test_what_cannot_work_is_said(tmp_path: Path, run: Run) -> None:
    """A program the unit could not start, one it hides, a place that cannot be written."""
    spaced = run("install-units", "--destdir", str(tmp_path), "--program", "/opt/a b/gaussdecode")
    assert spaced.status == EX_CONFIG
    assert "--program" in spaced.err
    hidden = run("install-units", "--destdir", str(tmp_path), "--program", "/home/a/gaussdecode")
    assert hidden.status == EX_OK
    assert "ProtectHome" in hidden.err
    file = tmp_path / "file"
    file.touch()
    blocked = run("install-units", "--destdir", str(file), "--program", "/opt/gaussdecode")
    assert blocked.status == EX_CONFIG
    assert "cannot be written" in blocked.err


def test_systemd_accepts_what_is_installed(tmp_path: Path, run: Run, program: Path) -> None:
    """Nothing to complain of in unit and target, as an instance, together."""
    run("install-units", "--destdir", str(tmp_path), "--program", str(program))
    directory = tmp_path / SYSTEM
    (directory / "gaussdecode@orders.service").symlink_to("gaussdecode@.service")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "gaussdecode@orders.service",
         "gaussdecode.target"],
        capture_output=True, text=True, check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning", "SYSTEMD_UNIT_PATH": f"{directory}:"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_slots_belong_to_one_target(tmp_path: Path, run: Run, program: Path) -> None:
    """Enabled slots start with the target; disabling one leaves the others enabled."""
    run("install-units", "--destdir", str(tmp_path), "--program", str(program))
    for unit in ("gaussdecode@orders", "gaussdecode@stock", "gaussdecode.target"):
        systemctl(tmp_path, "enable", unit)
    wants = {
        f"{SYSTEM}/gaussdecode.target.wants/gaussdecode@{s}.service" for s in ("orders", "stock")
    }
    boot = f"{SYSTEM}/multi-user.target.wants/gaussdecode.target"
    assert wants | {boot} <= files_below(tmp_path)
    systemctl(tmp_path, "disable", "gaussdecode@orders")
    left = files_below(tmp_path)
    assert boot in left
    assert {path for path in left if "target.wants/gaussdecode@" in path} == {
        f"{SYSTEM}/gaussdecode.target.wants/gaussdecode@stock.service"
    }
    unit = (tmp_path / SYSTEM / "gaussdecode@.service").read_text()
    assert "\nPartOf=gaussdecode.target\n" in unit, "stop and restart of the target reach slots"
    assert "ExecReload" not in unit, "there is no reload, and systemctl says so"
