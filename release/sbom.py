"""Write what an environment of gaussdecode is made of, as a CycloneDX document.

Names, versions, licences and dependencies are those of the installed packages; the checksums,
one for each file of a registry that may be installed, are those of the lock file. Only what
gaussdecode needs is listed: tools that are installed beside it are not part of the product.

usage: release/sbom.py [--lock FILE] [--environment PYTHON] OUT
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement

_ROOT: Final = Path(__file__).parents[1]
_PRODUCT: Final = "gaussdecode"
_PIN: Final = re.compile(r"^([\w.-]+)==(\S+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_ASK: Final = """
import json
from importlib.metadata import distributions
print(json.dumps([{**each.metadata.json, "requires": each.requires or []} for each in distributions()]))
"""

Json = dict[str, Any]  # Any: JSON


class Pin(NamedTuple):
    """A package as the lock file has it."""

    name: str
    version: str

    @property
    def purl(self) -> str:
        """Its name for tools that look for known weaknesses."""
        return f"pkg:pypi/{self.name}@{self.version}"


def normalized(name: str) -> str:
    """The spelling by which registries compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lock(path: Path) -> Mapping[Pin, list[str]]:
    """SHA-256 of every file that may be installed for each pinned package."""
    found: dict[Pin, list[str]] = {}
    for paragraph in re.split(r"\n(?=\S)", path.read_text()):
        if pin := _PIN.match(paragraph):
            found[Pin(normalized(pin[1]), pin[2])] = _HASH.findall(paragraph)
    return found


def read_environment(python: str) -> Mapping[str, Json]:
    """Metadata of what is installed, by name."""
    told = subprocess.run([python, "-c", _ASK], check=True, stdout=subprocess.PIPE)
    return {normalized(each["name"]): each for each in json.loads(told.stdout)}


def describe(installed: Mapping[str, Json], lock: Mapping[Pin, list[str]]) -> Json:
    """Describe the product and all that it needs in turn.

    Raises:
        SystemExit: what is installed is not what is locked.
    """
    needs: dict[str, list[str]] = {}
    waiting = [_PRODUCT]
    for name in waiting:
        if name not in needs:
            needs[name] = _needs(installed[name], installed)
            waiting += needs[name]
    pins = {name: Pin(name, installed[name]["version"]) for name in needs}
    if unlike := sorted({pins[name] for name in needs if name != _PRODUCT} - set(lock)):
        raise SystemExit(f"installed, but not as it is locked: {', '.join(map('=='.join, unlike))}")
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": _component(pins[_PRODUCT], installed[_PRODUCT], "application")},
        "components": [
            {
                **_component(pin, installed[name], "library"),
                "externalReferences": [_files(pin, lock)],
            }
            for name, pin in sorted(pins.items())
            if name != _PRODUCT
        ],
        "dependencies": [
            {"ref": pins[name].purl, "dependsOn": [pins[each].purl for each in needs[name]]}
            for name in sorted(needs)
        ],
    }


def _needs(metadata: Json, installed: Mapping[str, Json]) -> list[str]:
    """Names of what a package asks for and has got, with the extras that we ask for."""
    wanted = map(Requirement, metadata["requires"])
    extras = ("", "binary") if normalized(metadata["name"]) == "psycopg" else ("",)
    return sorted(
        normalized(each.name)
        for each in wanted
        if normalized(each.name) in installed
        and any(each.marker is None or each.marker.evaluate({"extra": extra}) for extra in extras)
    )


def _component(pin: Pin, metadata: Json, kind: str) -> Json:
    return {
        "type": kind,
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.purl,
        "description": metadata.get("summary", ""),
        "licenses": [_license(metadata)],
    }


def _license(metadata: Json) -> Json:
    """The expression of new packages, the words of older ones."""
    if expression := metadata.get("license_expression"):
        return {"expression": expression}
    told = [each for each in metadata.get("classifier", ()) if each.startswith("License ::")]
    return {"license": {"name": metadata.get("license") or told[0].rpartition(" :: ")[2]}}


def _files(pin: Pin, lock: Mapping[Pin, list[str]]) -> Json:
    return {
        "type": "distribution",
        "url": f"https://pypi.org/project/{pin.name}/{pin.version}/#files",
        "comment": "any one of the files that are locked",
        "hashes": [{"alg": "SHA-256", "content": content} for content in lock[pin]],
    }


def main() -> None:
    """Write the document, if it follows the schema."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lock", type=Path, default=_ROOT / "requirements.lock")
    parser.add_argument("--environment", default=sys.executable, help="its interpreter")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    document = describe(read_environment(args.environment), read_lock(args.lock))
    text = json.dumps(document, indent=1)
    if fault := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise SystemExit(f"not as the schema wants it: {fault}")
    args.out.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
