"""Write docs/configuration.md, docs/metrics.md and docs/versions.md from the tables in the code.

``python docs/generate.py`` writes them; ``--check`` names those that are out of date, and ends
with 1 if there is one.
"""

import dataclasses
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from gaussdecode.metrics.daemon import STAGES
from gaussdecode.metrics.table import METRICS
from gaussdecode.protocol.gaussdb.facts import FACTS, VERSIONS, cells
from gaussdecode.settings.load import SECTIONS
from gaussdecode.settings.option import Option, SourceKind, Support
from gaussdecode.settings.options import OPTIONS
from gaussdecode.settings.source_sections import GAUSSDB_SLOT_NAME, SLOT_NAME, Member
from gaussdecode.settings.types import Setting

_HERE: Final = Path(__file__).parent
_NOTE: Final = "<!-- Written by docs/generate.py; change the tables in the code instead. -->\n"

_CONFIGURATION: Final = """# Configuration

{note}
One YAML file describes one slot. Its name without `.yaml` is the instance of the systemd unit.
`gaussdecode check FILE` reads it and reports every mistake at once. Then it connects, and prints
what the daemon would do. Sizes need a unit: B, KiB, MiB, GiB or TiB. So do time spans: ms, s, min, h or d.
Unknown keys, repeated keys, anchors, aliases and tags are refused.

A value may hold variables of the environment, as `${{NAME}}`; a key may not. A variable that is not set is an error.
`$${{` stands for `${{` itself. Within `{{...}}` or `[...]` YAML needs quotes around such a value. The daemon reads the
variables at its start, with systemd from a drop-in with `EnvironmentFile=`; all processes of its user can read them.
Otherwise only the systemd credential `password`, and credentials of the mirror's store, come from the environment.

`slot` (required) is the name of the replication slot: {slot};
with kind gaussdb {gaussdb_slot}.
`gaussdecode ctl CONFIG reload` takes changed keys. Where a restart is needed, the key says so. `slot`, and the names of `sources`,
need one too.
With `sources`, each source has a section with a name of its own (1 to 63 of A-Z, a-z, 0-9, _ and -). Then
`slot` and the connection string belong there.

{sections}## decoding

The keys are GaussDB's own option names, with the types, ranges and defaults of its
documentation. `parallel-decode-num` above 1 means parallel decoding. Some options need a mode:

- options for parallel decoding are refused in serial decoding, and the other way round;
- options for distributed decoding that the server carries out need `output-order: 1`.

*Default* is the product's. Where serial and parallel decoding, or the daemon, have another default, the
column names it too.

{options}
### Notes

{notes}
### Who does what

The table names who implements each option, for each kind of source:

- **server**: the option is passed to the server;
- **daemon**: the daemon does it, with the same meaning;
- **both**: the server and the daemon;
- **refused**: nobody, with the reason. A value that asks for nothing is accepted.

*PostgreSQL* includes recordings of it. *openGauss* and *GaussDB* are both `kind: gaussdb`. The daemon
finds the product and its version when it connects, and `gaussdecode check` prints the column that applies.
*Since* is the first openGauss version with the option. For earlier ones, see the text after "before".

{support}
### START_REPLICATION

`gaussdecode` passes on the options that are set and that the server knows. It always passes
`parallel-decode-num` (also 1, because the server's own default can be changed) and
`include-timestamp`. In parallel decoding it also passes `decode-style` and `sending-batch`. The plug-in
`sql_decoding`, in serial decoding, knows only `include-xids`, `include-timestamp`, `skip-empty-xacts` and
`only-local`.

The server needs balanced quotes and parentheses in the whole command, also inside values. A table name
that is not balanced is passed on as `schema.*` and filtered by the daemon. Any other such value is refused.
"""

_METRICS: Final = """# Metrics

{note}
`http://LISTEN/metrics` serves them in Prometheus's text format. Every series has the label
`slot`; the column *labels* lists the others. Counters end in `_total`. Metrics of the process
(`process_resident_memory_bytes` and others) are served too.

{table}
## Stages

`gaussdecode_daemon_stage_seconds` has one histogram per `stage`, in the order in which changes pass them.
Compare their quantiles with `histogram_quantile`. Durations of sessions that have ended still count.

{stages}"""


_VERSIONS: Final = """# What each version sends

{note}
Evidence for openGauss: the source of its releases, and recordings of a real 5.0.0 and 6.0.2. Versions between
two columns behave as the column to their left. Behaviour of GaussDB is *assumed*, because its source is not
public: `gaussdecode check` prints the assumptions.

{table}
Evidence: in the tags v2.1.0 to v7.0.0-RC1 of the server's source, unless the row says that it was seen:

{sources}"""


_FOR_START: Final = "Needs a restart: a reload keeps the value that it started with."


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
        meaning = f"{setting.meaning} {_FOR_START}" if setting.is_for_start else setting.meaning
        rows.append((f"`{key}`", setting.type.allowed, default, meaning))
    doc = (cls.__doc__ or "").splitlines()[0]
    return f"## {name}\n\n{doc}\n\n{table(('key', 'allowed', 'default', 'meaning'), rows)}\n"


def option_default(option: Option) -> str:
    """Spell the product's default, and ours where it differs."""
    is_computed = option.default is None
    text = "the server's" if is_computed else f"`{option.type.show(option.default)}`"
    if option.name == "max-txn-in-memory":
        text += "; parallel: 25% of the process memory"
    elif option.name == "max-reorderbuffer-in-memory":
        text += "; parallel: 50% of the process memory"
    elif option.default_parallel is not None:
        text += f"; parallel: `{option.type.show(option.default_parallel)}`"
    return text + own_default(option)


def own_default(option: Option) -> str:
    """Spell our default, and where it holds when not everywhere."""
    own = option.own_defaults
    if not own:
        return ""
    value = option.type.show(next(iter(own.values())))
    if SourceKind.GAUSSDB not in own:
        return f"; **here** `{value}` on PostgreSQL"
    is_everywhere = SourceKind.POSTGRESQL in own
    return f"; **here** `{value}`" + ("" if is_everywhere else " on GaussDB and openGauss")


def option_range(option: Option) -> str:
    """Spell the type and range."""
    unit = f" {option.unit}" if option.unit else ""
    if option.memory_share is not None:
        share = round(option.memory_share * 100)
        return f"{option.type.allowed}{unit}; parallel: up to {share}% of the process memory"
    return f"{option.type.allowed}{unit}"


def support_text(support: Support) -> str:
    """Spell the implementer, and how."""
    return f"**{support.by}**: {support.how}"


def options_table() -> str:
    """Describe all options."""
    header = ("option", "for", "allowed", "default", "meaning")
    rows = [
        (
            f"`{option.name}`",
            str(option.section),
            option_range(option),
            option_default(option),
            option.meaning,
        )
        for option in OPTIONS
    ]
    return table(header, rows)


def since(support: Support) -> str:
    """Spell the first version of openGauss that knows an option."""
    if support.since is not None:
        return ".".join(str(part) for part in support.since)
    return "all" if support.is_passed_on else "-"


def support_table() -> str:
    """Name the implementer of each option for each kind of source."""
    header = ("option", "PostgreSQL", "openGauss", "since", "GaussDB")
    rows = []
    for option in OPTIONS:
        there = support_text(option.opengauss)
        if option.opengauss.before is not None:
            there += f"; before {support_text(option.opengauss.before)}"
        is_same = option.gaussdb == option.opengauss
        rows.append(
            (
                f"`{option.name}`",
                support_text(option.postgresql),
                there,
                since(option.opengauss),
                "as openGauss" if is_same else support_text(option.gaussdb),
            )
        )
    return table(header, rows)


def notes() -> str:
    """Notes that are too long for the table."""
    return (
        "- The *process memory* is the product's max_process_memory. Here it is the memory of the\n"
        "  daemon's machine, or of its control group when that is less. openGauss itself accepts at\n"
        "  most 100, in both modes.\n"
        "- `0` for both memory options leaves `landing.memory-bytes` as the only limit. The daemon\n"
        "  always has one.\n"
        "- `include-timestamp` is true here in every mode, unlike the product's parallel mode,\n"
        "  because the readers of the landing need the commit time.\n"
        "- `white-table-list` splits a name at its first dot and compares exactly, in upper and\n"
        "  lower case as the catalogue has it.\n"
        "- A recording of a GaussDB stream is read as any other. The options of its server are\n"
        "  those that were set when it was recorded.\n"
    )


def configuration_page() -> str:
    """Write docs/configuration.md."""
    shown = {"source": SECTIONS["source"], "sources.NAME": Member, **SECTIONS}
    sections = "".join(section(name, cls) for name, cls in shown.items())
    return _CONFIGURATION.format(
        note=_NOTE,
        slot=SLOT_NAME.allowed,
        gaussdb_slot=GAUSSDB_SLOT_NAME.allowed,
        sections=sections,
        options=options_table(),
        notes=notes(),
        support=support_table(),
    )


def metrics_page() -> str:
    """Write docs/metrics.md."""
    header = ("metric", "type", "unit", "labels", "meaning", "when it moves")
    rows = [
        (f"`{m.name}`", str(m.kind), m.unit, ", ".join(m.labels), m.help, m.action) for m in METRICS
    ]
    stages = [(f"`{name}`", *of) for name, of in STAGES.items()]
    return _METRICS.format(
        note=_NOTE,
        table=table(header, rows),
        stages=table(("stage", "counts", "when it rises"), stages),
    )


def versions_page() -> str:
    """Write docs/versions.md."""
    return _VERSIONS.format(
        note=_NOTE,
        table=table(("", *VERSIONS, "GaussDB"), [(fact.title, *cells(fact)) for fact in FACTS]),
        sources=table(("fact", "source"), [(fact.title, fact.source) for fact in FACTS]),
    )


def pages() -> dict[Path, str]:
    """All generated pages."""
    return {
        _HERE / "configuration.md": configuration_page(),
        _HERE / "metrics.md": metrics_page(),
        _HERE / "versions.md": versions_page(),
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
