"""Read the virtual slots of a landing from beside the server that has them, as retention does.

Given the root of a landing. Needs no lock: a slot's file is replaced as a whole.
"""

from pathlib import Path
from typing import Final

from gaussdecode.model.seal import read_sealed

SLOTS: Final = "serve/slots"


def kept_slots(root: Path) -> dict[str, int]:
    """Number of the first entry that each slot has not confirmed, by name.

    Of a slot whose file cannot be read nobody knows what it needs: it counts as entry 0.
    """
    found: dict[str, int] = {}
    try:
        paths = sorted((root / SLOTS).glob("[a-z0-9_]*.json"))
    except OSError:
        return {}
    for path in paths:
        try:
            found[path.stem] = int(read_sealed(path.read_bytes())["n"])
        except FileNotFoundError:
            continue  # it was dropped meanwhile
        except (OSError, KeyError, TypeError, ValueError):
            found[path.stem] = 0
    return found
