"""Check each section of a configuration that stands for itself.

Given the fields of the sections that are present and right, by name; gives problems: the key from the top, and a
text.
"""

import dataclasses
import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from gaussdecode.settings.landing_sections import LandingConfig
from gaussdecode.settings.sections import GuardConfig, MonitoringConfig

LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_TLS_PAIRS: Final = (
    ("tls-certificate-file", "tls-key-file"),
    ("tls-key-file", "tls-certificate-file"),
    ("tls-client-ca-file", "tls-certificate-file"),
)
_OF_THE_SYSTEM: Final = re.compile(
    "/|/(bin|boot|dev|etc|home|lib|lib64|proc|root|run|sbin|sys|tmp|usr|var)|/(dev|proc|sys)/.*"
    "|/usr/(bin|lib|local|share)|/var/(cache|lib|log|spool|tmp)"
)
Fields = Mapping[str, Any]  # Any: fields of several types
Problems = Iterator[tuple[str, str]]


def problems_of(
    sections: Mapping[str, Fields], mirror_keys: Collection[str], *, is_distributed: bool
) -> Problems:
    """Check them.

    Args:
        sections: fields by section.
        mirror_keys: keys that the section of the mirror has, right or wrong.
        is_distributed: there are several sources of kind gaussdb.
    """
    monitoring = sections["monitoring"]
    yield from _landing(sections["landing"], is_distributed=is_distributed)
    yield from _mirror(sections["landing.mirror"], mirror_keys)
    yield from _monitoring(monitoring)
    yield from _guard(sections["guard"])
    yield from _serve(sections["serve"], monitoring)


def _landing(fields: Fields, *, is_distributed: bool) -> Problems:
    values = {**{of.name: of.default for of in dataclasses.fields(LandingConfig)}, **fields}
    root = os.path.normpath(f"/{str(fields.get('root', '/landing')).lstrip('/')}")
    if _OF_THE_SYSTEM.fullmatch(root):
        other = "name one that holds nothing else, such as /var/lib/gaussdecode/orders"
        yield "landing.root", f"{root} is a directory of the system; {other}"
    if values["row_group_bytes"] > values["memory_bytes"]:
        yield "landing.row-group-bytes", "above landing.memory-bytes"
    if fields.get("replicated_tables") and not is_distributed:
        yield "landing.replicated-tables", "has a use with sources of kind gaussdb only"


def _mirror(fields: Fields, keys: Collection[str]) -> Problems:
    if keys and "url" not in keys:
        yield "landing.mirror.url", "missing; the mirror needs it"
    url, endpoint = fields.get("url", ""), fields.get("endpoint", "")
    if endpoint.startswith("http:") and not fields.get("allow_http"):
        reason = "it has no TLS; allowed: https://..., or any with allow-http: true"
        yield "landing.mirror.endpoint", reason
    for key in ("region", "virtual-hosted"):
        if key in keys and url and not url.startswith("s3:"):
            yield f"landing.mirror.{key}", "has a use with s3:// only"


def _monitoring(fields: Fields) -> Problems:
    listen = fields.get("listen")
    if listen is not None and listen.host not in LOOPBACK and not fields.get("allow_remote"):
        how = "without a login" if fields.get("tls_certificate_file") else "without TLS"
        allowed = "127.0.0.1, ::1, localhost, or any with allow-remote: true"
        reason = f"{listen} is reached from other machines, {how}; allowed: {allowed}"
        yield "monitoring.listen", reason
    yield from _tls("monitoring", fields)


def _tls(section: str, fields: Fields) -> Problems:
    """Each file of TLS with those that it has no use without."""
    given = {key.replace("_", "-") for key, value in fields.items() if value is not None}
    for key, needed in _TLS_PAIRS:
        if key in given and needed not in given:
            yield f"{section}.{key}", f"has no use without {needed}"


def _guard(fields: Fields) -> Problems:
    defaults = {of.name: of.default for of in dataclasses.fields(GuardConfig)}
    warn, pause = ({**defaults, **fields}[name] for name in ("warn_before", "pause_before"))
    if "pause_before" in fields and None not in (warn, pause) and pause > warn:
        yield "guard.pause-before", "above guard.warn-before"


def _serve(fields: Fields, monitoring: Fields) -> Problems:
    listen = fields.get("listen")
    if listen is not None and listen.host not in LOOPBACK and not fields.get("users_file"):
        reason = f"{listen} is reached from other machines, without users; set serve.users-file"
        yield "serve.listen", reason
    watched = fields.get("monitoring_listen")
    reason = ""
    if watched is not None and watched == monitoring.get("listen", MonitoringConfig().listen):
        reason = "is monitoring.listen, the port of the daemon; use another port"
    elif watched is not None and not (watched.host in LOOPBACK or monitoring.get("allow_remote")):
        reason = "is reached from other machines; allowed with monitoring.allow-remote: true"
    if reason:
        yield "serve.monitoring-listen", f"{watched} {reason}"
    yield from _tls("serve", fields)
