"""Writes docs/configuration.md and docs/metrics.md from the tables in the code.

``python docs/generate.py`` writes them; ``--check`` says which are out of date and ends
with 1 if any is.
"""

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from gaussdecode.config import SECTIONS
from gaussdecode.metrics import METRICS
from gaussdecode.options import OPTIONS, Doer, Option, SourceKind, Support
from gaussdecode.settings import SLOT_NAME, Setting

_HERE: Final = Path(__file__).parent
_NOTE: Final = "<!-- Written by docs/generate.py; change the tables in the code instead. -->\n"

_CONFIGURATION: Final = """# Configuration

{note}
One YAML file describes one slot; its name without `.yaml` is the instance of the systemd
unit. `gaussdecode check FILE` reads it, reports every mistake at once, connects, and prints
what would be done. Sizes are written with B, KiB, MiB, GiB or TiB, time spans with ms, s,
min, h or d; a number without a unit is refused. Unknown keys, keys given twice, anchors,
aliases and tags are refused. Nothing is read from the environment but the systemd
credential `password`.

`slot` (required) is the name of the replication slot: {slot}.

{sections}## decoding

The keys are GaussDB's own option names, with the types, ranges and defaults of its
documentation. *Default* is the product's; where serial and parallel decoding differ, both
are given. *PostgreSQL* says who does it on a PostgreSQL source or a recording of one: the
**server**, the **daemon** with the same meaning, or nobody (**refused**, with the reason; a
value that asks for nothing is accepted). `parallel-decode-num` above 1 is parallel decoding.
Options for parallel decoding are refused without it, those for distributed decoding without
`output-order: 1`.

{options}
### Notes

{notes}
### On a GaussDB source

`kind: gaussdb` is refused in this version. The table already knows that source: options are
passed to the server, except

{gaussdb}"""

_METRICS: Final = """# Metrics

{note}
`http://LISTEN/metrics` shows them in Prometheus's text format. Every series has the label
`slot`; the column *labels* names more. Counters end in `_total`. The process's own metrics
(`process_resident_memory_bytes` and others) are there too.

{table}"""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in lines)


def section(name: str, cls: type[Any]) -> str:  # Any: the section classes share no base
    """Describe one section of the file."""
    rows = []
    for field in dataclasses.fields(cls):
        setting: Setting = field.metadata["setting"]
        if field.default is dataclasses.MISSING:
            default = "required"
        else:
            is_empty = field.default in ((), "", None)
            default = "none" if is_empty else f"`{setting.type.show(field.default)}`"
        key = field.name.replace("_", "-")
        rows.append((f"`{key}`", setting.type.allowed, default, setting.meaning))
    doc = (cls.__doc__ or "").splitlines()[0]
    return f"## {name}\n\n{doc}\n\n{table(('key', 'allowed', 'default', 'meaning'), rows)}\n"


def option_default(option: Option) -> str:
    """Spell the product's default, and ours on PostgreSQL where it differs."""
    is_computed = option.default is None
    text = "the server's" if is_computed else f"`{option.type.show(option.default)}`"
    if option.name == "max-txn-in-memory":
        text += "; parallel: 25% of the process memory"
    elif option.name == "max-reorderbuffer-in-memory":
        text += "; parallel: 50% of the process memory"
    elif option.default_parallel is not None:
        text += f"; parallel: `{option.type.show(option.default_parallel)}`"
    if option.own_default is not None:
        text += f"; **here** `{option.type.show(option.own_default)}`"
    return text


def option_range(option: Option) -> str:
    """Spell the type and range."""
    unit = f" {option.unit}" if option.unit else ""
    if option.memory_share is not None:
        share = round(option.memory_share * 100)
        return f"{option.type.allowed}{unit}; parallel: up to {share}% of the process memory"
    return f"{option.type.allowed}{unit}"


def support_text(support: Support) -> str:
    """Spell who does it."""
    return f"**{support.by}**: {support.how}"


def options_table() -> str:
    """Describe all options."""
    header = ("option", "for", "allowed", "default", "meaning", "PostgreSQL")
    rows = [
        (
            f"`{option.name}`",
            str(option.section),
            option_range(option),
            option_default(option),
            option.meaning,
            support_text(option.support(SourceKind.POSTGRESQL)),
        )
        for option in OPTIONS
    ]
    return table(header, rows)


def notes() -> str:
    """What the table has no room for."""
    return (
        "- The *process memory* is the product's max_process_memory; on PostgreSQL it is the\n"
        "  memory of the machine, or of the control group when that is less.\n"
        "- `0` for both memory options leaves `landing.memory-bytes` as the only limit: the\n"
        "  daemon is never without one.\n"
        "- `include-timestamp` is true here in every mode, unlike the product's parallel mode,\n"
        "  because the readers of the landing need the commit time.\n"
        "- `white-table-list` splits a name at its first dot and compares exactly, in upper and\n"
        "  lower case as the catalogue has it.\n"
    )


def gaussdb_exceptions() -> str:
    """List what is not simply passed on."""
    lines = []
    for option in OPTIONS:
        support = option.support(SourceKind.GAUSSDB)
        if support.by is not Doer.SERVER:
            lines.append(f"- `{option.name}`: {support_text(support)}\n")
    return "".join(lines)


def configuration_page() -> str:
    """Write docs/configuration.md."""
    sections = "".join(section(name, cls) for name, cls in SECTIONS.items())
    return _CONFIGURATION.format(
        note=_NOTE,
        slot=SLOT_NAME.allowed,
        sections=sections,
        options=options_table(),
        notes=notes(),
        gaussdb=gaussdb_exceptions(),
    )


def metrics_page() -> str:
    """Write docs/metrics.md."""
    header = ("metric", "type", "unit", "labels", "meaning", "when it moves")
    rows = [
        (f"`{m.name}`", str(m.kind), m.unit, ", ".join(m.labels), m.help, m.action) for m in METRICS
    ]
    return _METRICS.format(note=_NOTE, table=table(header, rows))


def pages() -> dict[Path, str]:
    """All generated pages."""
    return {
        _HERE / "configuration.md": configuration_page(),
        _HERE / "metrics.md": metrics_page(),
    }


def main(arguments: Sequence[str]) -> int:
    """Write or check the pages."""
    stale = [
        path
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if "--check" in arguments:
        for path in stale:
            print(f"docs/{path.name} is out of date; run: python docs/generate.py")
        return 1 if stale else 0
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
