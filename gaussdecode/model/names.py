"""Make column names for files that Spark can tell apart from each other and from the landing's own. Pure."""

from collections.abc import Sequence


def safe_columns(names: Sequence[str]) -> list[str]:
    """Rename columns that Spark could not tell apart from each other or from ours.

    The first of several names that differ only by case keeps its name, the others get
    ``_2``, ``_3`` ...; a name that begins with ``gd_`` in any case gets ``col_`` before it.

    Args:
        names: true names, in the order of the table.

    Returns:
        One name per column; distinct when lower-cased. Equal to `names` nearly always.
    """
    taken = {name.lower() for name in names}
    used: set[str] = set()
    result = []
    for name in names:
        chosen = f"col_{name}" if name.lower().startswith("gd_") else name
        wanted, number = chosen, 1
        while chosen.lower() in used or (chosen != name and chosen.lower() in taken):
            number += 1
            chosen = f"{wanted}_{number}"
        used.add(chosen.lower())
        result.append(chosen)
    return result
