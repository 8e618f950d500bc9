"""Read the configuration of one slot from one YAML file, and check it before anything starts.

`load` reports every mistake at once, one line each: file, line, key, value, what is
allowed. A password is never in a message or in the ``repr`` of a section. Checks that need a server are made by
``gaussdecode check``. The sections are in `settings.source_sections`, `settings.landing_sections`
and `settings.sections`.
"""

import dataclasses
import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gaussdecode.errors import ConfigError
from gaussdecode.host.access import refused
from gaussdecode.host.process_memory import process_memory_bytes
from gaussdecode.settings import rules as options
from gaussdecode.settings.dsn import dsn_problems, gaussdb_dsn_problems, parameters_of
from gaussdecode.settings.landing_sections import LandingConfig, MirrorConfig, SnapshotConfig
from gaussdecode.settings.option import AUTO, Doer, SourceKind
from gaussdecode.settings.section_checks import problems_of
from gaussdecode.settings.sections import (
    Config,
    GuardConfig,
    MonitoringConfig,
    NotifyConfig,
    RingConfig,
)
from gaussdecode.settings.serve_section import ServeConfig
from gaussdecode.settings.source_sections import (
    GAUSSDB_SLOT_NAME,
    PARALLEL_PLUGINS,
    SLOT_NAME,
    SQL_DECODING,
    SQL_DECODING_OPTIONS,
    DecodingConfig,
    Member,
    SourceConfig,
)
from gaussdecode.settings.types import Patterns, Setting, ValueType
from gaussdecode.settings.yamlfile import Entry, Section, YamlError, parse, plain_scalar

_LEAST_MEMBERS: Final = 2
_VARIABLE: Final = re.compile(r"\$?\$\{(?:([A-Za-z_][A-Za-z0-9_]*)\}|[^}]*\}?)")
_MARK: Final = "\N{WHITE SQUARE}"  # for a variable, where its value does not matter
_MEMBER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")
_ONE_EACH: Final = "has no use with sources: each of them has a reader of its own, always"
_SECRET_KEYS: Final = frozenset({"password", "passwd", "pgpassword", "secret"})
_NEEDED: Final = {
    SourceKind.POSTGRESQL: ("dsn", "publication"),
    SourceKind.GAUSSDB: ("dsn",),
    SourceKind.CAPTURE: ("file",),
}
_GAUSSDB_ONLY: Final = ("ha-port", "plugin", "invisible-truncate", "max-message-size")
_UNUSED: Final = {
    SourceKind.POSTGRESQL: ("file", *_GAUSSDB_ONLY),
    SourceKind.GAUSSDB: ("file", "publication", "messages", "streaming", "two-phase"),
    SourceKind.CAPTURE: (
        "dsn",
        "password-file",
        "password-command",
        "publication",
        "streaming",
        "two-phase",
        *_GAUSSDB_ONLY,
    ),
}
SECTIONS: Final[Mapping[str, type[Any]]] = {  # Any: the section classes share no base
    "source": SourceConfig,
    "landing": LandingConfig,
    "landing.mirror": MirrorConfig,
    "ring": RingConfig,
    "monitoring": MonitoringConfig,
    "guard": GuardConfig,
    "snapshot": SnapshotConfig,
    "notify": NotifyConfig,
    "serve": ServeConfig,
}
_TOP_KEYS: Final = (
    *("slot", "source", "sources", "decoding"),
    *(name for name in SECTIONS if name != "source" and "." not in name),
)


def load(path: Path | str, *, memory_bytes: int | None = None) -> Config:
    """Read and check one configuration.

    Args:
        path: the YAML file.
        memory_bytes: memory of the process, for the options whose range depends on it;
            None asks the system.

    Raises:
        ConfigError: all mistakes, one line each.
    """
    path = Path(path)
    reader = _Reader(path, memory_bytes or process_memory_bytes())
    config = reader.read()
    if reader.problems or config is None:
        lines = sorted(reader.problems)
        raise ConfigError("\n".join(reader.word(line, text) for line, text in lines))
    return config


class _Reader:
    """Walks one file and gathers complaints."""

    def __init__(self, path: Path, memory_bytes: int | None) -> None:
        self.path = path
        self.memory_bytes = memory_bytes
        self.problems: list[tuple[int, str]] = []
        self._tree: Section = {}

    def word(self, line: int, text: str) -> str:
        """Put file and line before a complaint."""
        return f"{self.path.name}:{line}: {text}" if line else f"{self.path.name}: {text}"

    def complain(self, path: str, text: str) -> None:
        """Note what is wrong with a key, given from the top; a key that is missing has no line."""
        self.problems.append((self._line(path), f"{path}: {text}"))

    def _line(self, path: str) -> int:
        above, _, key = path.rpartition(".")
        entry = (self._sub(above) if above else self._tree).get(key)
        return 0 if entry is None else entry.line

    def read(self) -> Config | None:
        """Read all sections, then check what spans several; None after any complaint."""
        try:
            tree = parse(self.path.read_text(encoding="utf-8"))
        except PermissionError as error:
            raise refused(self.path, error) from None
        except OSError as error:
            self.problems.append((0, f"cannot be read: {error.strerror}"))
            return None
        except UnicodeDecodeError:
            self.problems.append((0, "is not UTF-8"))
            return None
        except YamlError as error:
            self.problems.extend(error.problems)
            return None
        self._tree = tree = self._expanded(tree, "")
        self._refuse_unknown(tree, "", _TOP_KEYS)
        fields = {name: self._fields(name, cls) for name, cls in SECTIONS.items()}
        kind = fields["source"].get("kind")
        slot_name = GAUSSDB_SLOT_NAME if kind is SourceKind.GAUSSDB else SLOT_NAME
        members = self._members(slot_name)
        slot: object = ",".join(members)
        if "sources" not in tree:
            slot = self._value(tree, "", "slot", slot_name, is_required=True)
        given = self._options(kind)
        self._check_source(fields["source"])
        if kind is SourceKind.GAUSSDB:
            self._check_gaussdb(fields["source"], given)
        if "sources" in tree:
            self._check_members(members, fields, given)
        is_distributed = "sources" in tree and kind is SourceKind.GAUSSDB
        mirror_keys = self._sub("landing.mirror").keys()
        for path, text in problems_of(fields, mirror_keys, is_distributed=is_distributed):
            self.complain(path, text)
        if self.problems or not isinstance(slot, str):
            return None
        if kind is SourceKind.GAUSSDB:
            slot = slot.lower()  # as the server reads a name without quotes
            members = {
                name: dataclasses.replace(member, slot=member.slot.lower())
                for name, member in members.items()
            }
        sections = {name.rpartition(".")[2]: cls(**fields[name]) for name, cls in SECTIONS.items()}
        source = sections["source"]
        decoding = DecodingConfig.of(source.kind, given, source.plugin)
        config = Config(path=self.path, slot=slot, decoding=decoding, **sections)
        if members:
            slot = ",".join(members)
            config = dataclasses.replace(config, slot=slot).with_members(members)
        if config.landing.on_suspect == "snapshot" and config.snapshot_refusal is not None:
            self.complain("landing.on-suspect", f"snapshot: {config.snapshot_refusal}")
            return None
        return config

    def _expanded(self, section: Section, path: str) -> Section:
        """Put variables of the environment, ``${NAME}``, into the values of a section."""
        found: dict[str, Entry] = {}
        for key, entry in section.items():
            if _VARIABLE.search(key):
                self.problems.append((entry.line, f"{path}{key}: a key cannot hold a variable"))
                continue
            value = self._with_variables(entry, f"{path}{key}", entry.value)
            written = entry.value if isinstance(entry.value, str) and value != entry.value else None
            found[key] = Entry(entry.line, value, written)
        return found

    def _with_variables(self, entry: Entry, path: str, value: object) -> object:
        if isinstance(value, dict):
            return self._expanded(value, f"{path}.")
        if isinstance(value, list):
            return [self._with_variables(entry, path, item) for item in value]
        if not isinstance(value, str) or "${" not in value:
            return value

        def replaced(match: re.Match[str]) -> str:
            name = match[1]
            if match[0].startswith("$$"):
                return match[0][1:]
            if name is None:
                text = "${ begins a variable, ${NAME} of letters, digits and _; write $${ for ${ itself"
                self.problems.append((entry.line, f"{path}: {text}"))
            elif name not in os.environ:
                text = f"variable {name} of the environment is not set; set it, or write $${{ for ${{ itself"
                self.problems.append((entry.line, f"{path}: {text}"))
            return os.environ.get(name or "", "")

        return _VARIABLE.sub(replaced, value)

    # ---- several sources -------------------------------------------------------------

    def _members(self, slot_name: ValueType) -> dict[str, Member]:
        """Read the sources that stand under `sources`, as far as they are right."""
        section = self._sub("sources")
        if "sources" in self._tree and len(section) < _LEAST_MEMBERS:
            self.complain("sources", "names fewer than two; of one, write slot and source.dsn")
        members: dict[str, Member] = {}
        for name in sorted(section):
            before = len(self.problems)
            if not _MEMBER_NAME.fullmatch(name):
                allowed = "1 to 63 letters, digits, _ or -"
                self.problems.append((section[name].line, f"sources.{name}: allowed: {allowed}"))
                continue
            values = self._fields(f"sources.{name}", Member)
            if "slot" in values:
                slot = Entry(self._line(f"sources.{name}.slot"), values["slot"])
                self._checked(slot, f"sources.{name}.slot", slot_name)
            if len(self.problems) == before:
                members[name] = Member(**values)
        return members

    def _check_members(
        self,
        members: Mapping[str, Member],
        fields: Mapping[str, Mapping[str, Any]],  # Any: fields
        given: Mapping[str, object],
    ) -> None:
        """Check what only several sources ask for."""
        kind: SourceKind = fields["source"].get("kind", SourceKind.POSTGRESQL)
        if "slot" in self._tree:
            self.complain("slot", "belongs under each of sources")
        for key in sorted(self._sub("source").keys() & {"dsn", "ha-port"}):
            self.complain(f"source.{key}", "belongs under each of sources")
        if kind is SourceKind.CAPTURE:
            self.complain("sources", "has no use with kind capture")
        if kind is SourceKind.GAUSSDB and given.get("output-order") != 1:
            reason = (
                "1 is needed with several sources of kind gaussdb: their one clock is that of CSNs"
            )
            self.problems.append((0, f"decoding.output-order: {reason}"))
        if "slice-id" in given:
            self.complain("decoding.slice-id", "belongs under each of sources")
        if "logical-receiver-num" in given:
            self.complain("decoding.logical-receiver-num", _ONE_EACH)
        if fields["source"].get("two_phase"):
            self.complain("source.two-phase", "is not supported with several sources")
        is_quarantining = fields["landing"].get("on_table_error") == "quarantine"
        if kind is SourceKind.POSTGRESQL and is_quarantining:
            self.complain(
                "landing.on-table-error",
                "quarantine: is not offered with several sources: a table has an OID of its own on each of them",
            )
        if fields["guard"].get("drop_slot_above") is not None:
            self.complain(
                "guard.drop-slot-above",
                "is not offered with several sources: one slot less would end the landing of all",
            )
        self._check_places(members, fields["source"], kind)

    def _check_places(
        self,
        members: Mapping[str, Member],
        source: Mapping[str, Any],  # Any: fields
        kind: SourceKind,
    ) -> None:
        """Each source at a place of its own, and reached as a single one would be."""
        is_private, is_insecure = _is_private(self.path), bool(source.get("allow_insecure"))
        seen: dict[tuple[str, str], str] = {}
        for name, member in members.items():
            dsn = self._sub(f"sources.{name}")["dsn"]
            is_hidden = is_private or not _holds_password(dsn)
            texts = list(dsn_problems(member.dsn, is_hidden, is_insecure))
            if kind is SourceKind.GAUSSDB:
                texts += gaussdb_dsn_problems(member.dsn)
            elif member.slice_id is not None:
                self.complain(f"sources.{name}.slice-id", "has a use with kind gaussdb only")
            for text in texts:
                self.complain(f"sources.{name}.dsn", text)
            other = seen.setdefault((member.dsn, member.slot), name)
            if other != name:
                self.complain(f"sources.{name}.slot", f"is the slot of {other} too")
        slices = [member.slice_id for member in members.values() if member.slice_id is not None]
        if slices and (len(slices) != len(members) or len(set(slices)) != len(slices)):
            reason = "slice-id: each of them its own, or none any"
            self.problems.append((0, f"sources: {reason}"))

    def _sub(self, name: str) -> Section:
        """Find a section, from the top; complaining once when something else stands there."""
        above, dot, key = name.rpartition(".")
        entry = (self._sub(above) if dot else self._tree).get(key)
        if entry is None or entry.value is None:
            return {}
        if not isinstance(entry.value, dict):
            problem = entry.line, f"{name}: must hold keys and values"
            if problem not in self.problems:
                self.problems.append(problem)
            return {}
        return entry.value

    def _refuse_unknown(self, section: Section, prefix: str, known: tuple[str, ...]) -> None:
        for key, entry in section.items():
            if key in known:
                continue
            if key.replace("-", "").replace("_", "").lower() in _SECRET_KEYS:
                hint = "passwords are not allowed here; use source.password-file or source.password-command"
            else:
                words = key.replace("_", "-")
                close = [of for of in known if set(of.split("-")) == set(words.split("-"))]
                close += difflib.get_close_matches(words, known, 1)
                hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
            self.problems.append((entry.line, f"{prefix}{key}: unknown key; {hint}"))

    def _value(
        self, section: Section, prefix: str, key: str, value_type: ValueType, *, is_required: bool
    ) -> object:
        entry = section.get(key)
        if entry is None:
            if is_required:
                self.problems.append((0, f"{prefix}{key}: missing; allowed: {value_type.allowed}"))
            return None
        return self._checked(entry, f"{prefix}{key}", value_type)

    def _checked(self, entry: Entry, path: str, value_type: ValueType) -> object:
        try:
            value = entry.value
            if isinstance(value, dict):
                is_wanted = isinstance(value_type, Patterns)
                value = {key: of.value for key, of in value.items()} if is_wanted else "{...}"
            return value_type.read(value)
        except ValueError as error:
            plain = None if entry.written is None else plain_scalar(str(entry.value))
            if plain is not None and not isinstance(plain, str):  # as ${PORT} has a number
                return self._checked(Entry(entry.line, plain), path, value_type)
            if entry.value is None:
                text = f"{path}: has no value; allowed: {value_type.allowed}"
                self.problems.append((entry.line, text))
                return None
            self.problems.append((entry.line, f"{path}: {error}"))
            return None

    def _fields(self, name: str, cls: type[Any]) -> dict[str, Any]:  # Any: fields
        """Read the fields of a section that are present and right."""
        section = self._sub(name)
        fields = {field.name.replace("_", "-"): field for field in dataclasses.fields(cls)}
        inner = [of.rpartition(".")[2] for of in SECTIONS if of.startswith(f"{name}.")]
        self._refuse_unknown(section, f"{name}.", (*fields, *inner))
        values: dict[str, Any] = {}  # Any: field values of several types
        for key, field in fields.items():
            setting: Setting = field.metadata["setting"]
            is_required = field.default is dataclasses.MISSING
            if key not in section and not is_required:
                continue
            before = len(self.problems)
            if setting.is_secret and not isinstance(section[key].value, str | None):
                self.complain(f"{name}.{key}", "is not a text")
                continue
            value = self._value(section, f"{name}.", key, setting.type, is_required=is_required)
            if len(self.problems) == before:
                values[field.name] = SourceKind(str(value)) if key == "kind" else value
        return values

    def _options(self, kind: SourceKind | None) -> dict[str, object]:
        section = self._sub("decoding")
        self._refuse_unknown(section, "decoding.", tuple(options.BY_NAME))
        decoders = section.get("parallel-decode-num")
        is_parallel = decoders is not None and decoders.value not in (1, AUTO)
        given: dict[str, object] = {}
        for name, entry in section.items():
            option = options.BY_NAME.get(name)
            if option is None:
                continue
            allowed = option.range(is_parallel=is_parallel, memory_bytes=self.memory_bytes)
            before = len(self.problems)
            value = self._checked(entry, f"decoding.{name}", allowed)
            if len(self.problems) == before:
                given[name] = value
        for name, reason in options.refusals(given, kind or SourceKind.POSTGRESQL):
            self.complain(f"decoding.{name}", reason)
        return given

    def _check_source(self, fields: Mapping[str, Any]) -> None:  # Any: fields
        section = self._sub("source")
        kind: SourceKind = fields.get("kind", SourceKind.POSTGRESQL)
        for key in _NEEDED.get(kind, ()):
            if key not in section and not (key == "dsn" and "sources" in self._tree):
                self.complain(f"source.{key}", f"missing; kind {kind} needs it")
        for key in _UNUSED.get(kind, ()):
            if key in section:
                self.complain(f"source.{key}", f"has no use with kind {kind}")
        if "dsn" in fields and kind is not SourceKind.CAPTURE:
            is_private = _is_private(self.path) or not _holds_password(section["dsn"])
            is_insecure_allowed = bool(fields.get("allow_insecure"))
            for text in dsn_problems(fields["dsn"], is_private, is_insecure_allowed):
                self.complain("source.dsn", text)
        command = fields.get("password_command", ())
        if command and not command[0].startswith("/"):
            self.complain("source.password-command", "the program is not an absolute path")
        if command and "password_file" in fields:
            reason = "is not possible together with source.password-file; leave one out"
            self.complain("source.password-command", reason)
        if fields.get("retry_first", 1.0) > fields.get("retry_max", 60.0):
            self.complain("source.retry-first", "above source.retry-max")

    def _check_gaussdb(
        self,
        fields: Mapping[str, Any],  # Any: fields
        given: Mapping[str, object],
    ) -> None:
        """Check what only our own client and the server's plug-ins ask for."""
        for text in gaussdb_dsn_problems(fields.get("dsn", "")):
            self.complain("source.dsn", text)
        plugin = fields.get("plugin")
        if given.get("parallel-decode-num", 1) != 1:
            return
        if plugin in PARALLEL_PLUGINS:
            reason = f"{plugin} needs decoding.parallel-decode-num from 2 to 20"
            self.complain("source.plugin", reason)
        if plugin == SQL_DECODING:
            for name in _beyond_sql_decoding(given):
                reason = "sql_decoding has no such option; use source.plugin mppdb_decoding"
                self.complain(f"decoding.{name}", reason)


def _holds_password(dsn: Entry) -> bool:
    """Whether a connection string has its password in the file itself, not in a variable."""
    if dsn.written is None:
        return True
    try:
        marked = parameters_of(_VARIABLE.sub(_MARK, dsn.written))
        return bool(marked.get("password", "").replace(_MARK, ""))
    except ConfigError:
        return True


def _is_private(path: Path) -> bool:
    """Whether nobody but us (and root) reads the file; to root that is any file's owner."""
    status, us = path.stat(), os.geteuid()
    return (us == 0 or status.st_uid in {us, 0}) and not status.st_mode & 0o077


def _beyond_sql_decoding(given: Mapping[str, object]) -> list[str]:
    """Name the options that ask the server for something its serial plug-in cannot do."""
    return [
        name
        for name, value in given.items()
        if name not in SQL_DECODING_OPTIONS
        and value != options.BY_NAME[name].default
        and options.BY_NAME[name].support(SourceKind.GAUSSDB).by is Doer.SERVER
    ]
