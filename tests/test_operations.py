"""The unit, the pages and the code say the same; the unit is hardened."""

import importlib.util
import inspect
import os
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gaussdecode
from gaussdecode import errors

ROOT = Path(__file__).parents[1]
UNIT = ROOT / "systemd" / "gaussdecode@.service"
OPERATIONS = ROOT / "docs" / "operate.md"
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
MAX_EXPOSURE = 20  # tenths, as systemd-analyze wants it


def classes() -> list[type[errors.GaussDecodeError]]:
    """Every error class of the package."""
    found = [item for _, item in inspect.getmembers(errors, inspect.isclass)]
    return [item for item in found if issubclass(item, errors.GaussDecodeError)]


def documented() -> dict[int, str]:
    """Exit statuses in docs/operate.md, with what systemd does."""
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", OPERATIONS.read_text(), re.MULTILINE)
    return {int(status): text for status, text in rows}


@pytest.fixture
def installed_unit(tmp_path: Path) -> Path:
    """An instance of the unit whose program exists here."""
    program = tmp_path / "gaussdecode"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = UNIT.read_text().replace("/opt/gaussdecode/bin/gaussdecode", str(program))
    path = tmp_path / "gaussdecode@orders.service"
    path.write_text(text)
    return path


def test_exit_statuses_are_documented() -> None:
    """The page lists exactly what the classes end with, and success."""
    assert set(documented()) == {item.exit_status for item in classes()} | {errors.EX_OK}


def test_unit_stays_down_where_the_page_says_so() -> None:
    """RestartPreventExitStatus is the page's "stays down", but for success."""
    match = re.search(r"^RestartPreventExitStatus=(.*)$", UNIT.read_text(), re.MULTILINE)
    assert match is not None
    down = {status for status, text in documented().items() if text.startswith("stays down")}
    assert {int(word) for word in match[1].split()} == down - {errors.EX_OK}


def test_retryable_errors_do_not_stay_down() -> None:
    """What may pass by itself is tried again by systemd too."""
    down = {status for status, text in documented().items() if text.startswith("stays down")}
    assert all(item.exit_status not in down for item in classes() if item.retryable)


def test_systemd_accepts_the_unit(installed_unit: Path) -> None:
    """systemd-analyze verify has nothing to say."""
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(installed_unit)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_unit_is_hardened(installed_unit: Path) -> None:
    """The exposure is at most 2.0 of 10, and the page states it."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={MAX_EXPOSURE}",
         str(installed_unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    match = re.search(r"Overall exposure level for \S+: (\d+\.\d)", done.stdout)
    assert match is not None
    assert float(match[1]) <= MAX_EXPOSURE / 10


def test_generated_pages_are_up_to_date() -> None:
    """docs/configuration.md and docs/metrics.md are what the tables say."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for path, text in generate.pages().items():
        assert path.read_text() == text, f"{path.name}: run python docs/generate.py"


def test_changelog_knows_the_version() -> None:
    """The version of the package has a heading."""
    assert f"\n## {gaussdecode.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_links_and_pictures_are_there() -> None:
    """What README and docs point to exists; no picture is too heavy for a slow line."""
    for page in PAGES:
        text = re.sub(r"`[^`\n]*`", "", page.read_text())
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
            path = page.parent / target
            assert path.exists(), f"{page.name}: {target}"
            if path.suffix == ".png":
                assert path.read_bytes().startswith(b"\x89PNG")
                assert path.stat().st_size < 150_000, target
            elif path.suffix == ".svg":
                drawing = path.read_text()
                assert ElementTree.fromstring(drawing).find("{*}title") is not None, target
                assert "prefers-color-scheme: dark" in drawing
                assert len(drawing) < 15_000, target


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 _-]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_anchors_are_there(page: Path) -> None:
    """Every section that a page points to, of its own or of another page, has its heading."""
    text = page.read_text().replace("\n", " ")
    for target, anchor in re.findall(r"\]\(((?:[\w./-]+\.md)?)#([^)]+)\)", text):
        assert anchor in anchors(page.parent / target if target else page), f"{target}#{anchor}"
