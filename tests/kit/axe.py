"""axe-core, which finds what people who use a keyboard or a screen reader stumble over.

One file of its package on npm, with the checksum that was looked at when it was chosen. Imports
nothing but the standard library, because it runs during set-up.
"""

import hashlib
import io
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kit.chromium import Chromium

_VERSION: Final = "4.14.1"
_URL: Final = f"https://registry.npmjs.org/axe-core/-/axe-core-{_VERSION}.tgz"
_SHA256: Final = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
_SCRIPT: Final = Path(sys.prefix) / f"axe-core-{_VERSION}.js"
_SECONDS: Final = 120
_RUN: Final = """
axe.run(document, {resultTypes: ['violations']}).then(r => ({
    passes: r.passes.length,
    bad: r.violations.flatMap(
        v => v.nodes.map(n => v.id + ': ' + n.html.slice(0, 200) + ' ' + n.failureSummary)),
}))
"""


def fetch() -> None:
    """Have the script below ``.venv``.

    Raises:
        RuntimeError: what came is not what was chosen.
    """
    if _SCRIPT.exists():
        return
    print(f"fetching axe-core {_VERSION} from npm", file=sys.stderr)
    with urllib.request.urlopen(_URL, timeout=_SECONDS) as answer:
        archive = answer.read()
    if hashlib.sha256(archive).hexdigest() != _SHA256:
        raise RuntimeError(f"{_URL} has another checksum than it had")
    with tarfile.open(fileobj=io.BytesIO(archive)) as package:
        script = package.extractfile("package/axe.min.js")
        assert script is not None
        _SCRIPT.write_bytes(script.read())


def complaints(browser: "Chromium") -> list[str]:
    """What axe finds in the page that is open, by all of its rules, the best practices too."""
    fetch()
    browser.evaluate(f"{_SCRIPT.read_text(encoding='utf-8')}; 0")
    found: dict[str, Any] = browser.evaluate(_RUN)  # Any: JSON
    assert found["passes"] > 10, "axe has looked at next to nothing"
    bad: list[str] = found["bad"]
    return bad


if __name__ == "__main__":
    fetch()
