"""Classify errors of the server by SQLSTATE: what each means, and whether to try again.

One table, by SQLSTATE and by the phase in which it came: the same code means a missing
slot when the stream is started and a missing publication once it runs. A code that is not
listed is judged by its class; an end without a code (shutdown, crash, network,
``wal_sender_timeout``) may pass.
"""

import dataclasses
import enum
import re
from collections.abc import Mapping
from typing import Final

from gaussdecode.errors import LoginRefusedError, SourceError, SourceRefusedError


class Phase(enum.Enum):
    """The phase in which an error came."""

    CONNECT = "connecting"
    COMMAND = "asking the server"
    START = "starting the stream"
    STREAM = "streaming"


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What an error means.

    Attributes:
        is_retryable: to try again may help.
        advice: a sentence for the operator.
        is_login: the server does not let us in; see `LoginRefusedError`.
    """

    is_retryable: bool
    advice: str
    is_login: bool = False

    @property
    def error_class(self) -> type[SourceError]:
        """The class of the exception."""
        if self.is_retryable:
            return SourceError
        return LoginRefusedError if self.is_login else SourceRefusedError


def retry(advice: str) -> Verdict:
    """Trying again may help."""
    return Verdict(True, advice)


def refuse(advice: str) -> Verdict:
    """Trying again does not help."""
    return Verdict(False, advice)


def not_let_in(advice: str) -> Verdict:
    """The server does not let us in; see `LoginRefusedError`."""
    return Verdict(False, advice, is_login=True)


_LOGIN: Final = not_let_in(
    "check the user, the password file and the server's pg_hba.conf (a line for this database, "
    "user and address; the keyword replication is not needed)"
)
POOLED: Final = (
    "a connection pooler such as PgBouncer is in between, which passes on less than is needed: give host and "
    "port of the server itself in source.dsn"
)
AWAY: Final = retry("the server is not available now")
"""Of an end without a code."""

_UNDECODABLE: Final = refuse(
    "the server decodes with the definitions of that moment, so a repair there helps only what is committed "
    "after it: repair it (see `gaussdecode check`), then go past what cannot be decoded: `gaussdecode slot "
    "accept-gap --until-lsn now`, then `gaussdecode snapshot --all`"
)

MISSING_PUBLICATION: Final = "42704"
"""While streaming; up to PostgreSQL 17 the server says so itself."""

WRONG_PASSWORD: Final = "28P01"  # noqa: S105 - an SQLSTATE

# By phase and code; None stands for every phase without a line of its own.
TABLE: Final[Mapping[tuple[Phase | None, str], Verdict]] = {
    (None, "28000"): _LOGIN,
    (None, "28P01"): _LOGIN,
    (None, "3D000"): not_let_in("the database does not exist; check dbname"),
    (None, "42501"): not_let_in(
        "the role lacks a privilege: LOGIN and REPLICATION for the stream, SELECT for rows of tables"
    ),
    (None, "0A000"): refuse("this server does not support the request"),
    (None, "22023"): refuse("the server refuses an option; see `gaussdecode check`"),
    (None, "42601"): refuse("the server does not understand the command; see `gaussdecode check`"),
    (None, "42710"): refuse("a slot of this name exists already"),
    (None, "53300"): retry("the server has no connection left (max_connections, max_wal_senders)"),
    (None, "53400"): refuse("all replication slots are in use; raise max_replication_slots"),
    (None, "55000"): refuse(
        "the slot belongs to another database, was invalidated, or wal_level is not logical; "
        "see `gaussdecode slot list`"
    ),
    (Phase.CONNECT, "55000"): not_let_in(
        "the database takes no connections: ALTER DATABASE ... ALLOW_CONNECTIONS true"
    ),
    (None, "55006"): retry(
        "the slot is in use; after a broken connection this passes within twice the server's "
        "wal_sender_timeout, otherwise another consumer reads this slot"
    ),
    (None, "57P01"): retry("the server ended the connection"),
    (None, "57P02"): AWAY,
    (None, "57P03"): AWAY,
    (None, "58P01"): refuse(
        "the server has removed WAL that the slot needs; the changes in it are gone, "
        "create a new slot and snapshot the tables again"
    ),
    (Phase.START, "42704"): refuse(
        "the replication slot does not exist; if it was dropped, changes are lost: "
        "create a slot and snapshot the tables again"
    ),
    (Phase.STREAM, MISSING_PUBLICATION): refuse(
        "a publication does not exist at this position of the WAL; a publication made later does "
        "not help: these changes are lost; to go on after them: `gaussdecode slot accept-gap "
        "--until-lsn now`, then `gaussdecode snapshot --all`"
    ),
    (Phase.STREAM, "0A000"): _UNDECODABLE,
    (Phase.START, "XX000"): refuse("the server refuses an option; see `gaussdecode check`"),
    (Phase.STREAM, "XX000"): retry(
        "the server had an internal error; if it repeats at the same position, see the server's log"
    ),
}

_REFUSING_CLASSES: Final = frozenset({"0A", "22", "23", "28", "3D", "42"})
_MAY_PASS: Final = retry("this may pass by itself")
_FINAL: Final = refuse("it will be refused again until something is changed")
_VALUE_CLASS: Final = "22"  # of expressions: row filters, and what prints values

# Faults that libpq finds itself, without a code; its messages are in English here.
_LOCAL: Final[Mapping[str, Verdict]] = {
    "invalid .*(connection option|sslmode value|port number)": refuse("correct the dsn"),
    "certificate verify failed": not_let_in(
        "the server's certificate is not signed by sslrootcert, or this machine's clock is outside its "
        "validity: compare `date -u` with `openssl s_client -starttls postgres -connect HOST:PORT "
        "</dev/null | openssl x509 -noout -dates`"
    ),
    "does not match host name": not_let_in("the certificate is for another host; check host="),
    "root certificate file .* does not exist": not_let_in(
        "name the authority's file with sslrootcert="
    ),
    "could not read root certificate file": not_let_in(
        "sslrootcert names no file of certificates, or one that is being replaced: write "
        "another file and rename it"
    ),
    "could not (read|open|load) (certificate|private key) file|but not private key file": not_let_in(
        "sslcert and sslkey name no certificate and its key, or files that are being replaced"
    ),
    "server does not support SSL": not_let_in("the server has no TLS; turn ssl on there"),
    "no password supplied": not_let_in("name a password file, or add the credential `password`"),
    "private key file .* has group or world access": not_let_in("chmod 0600 the file of sslkey"),
}
_OF_A_POOLER: Final = "unsupported startup parameter"  # no server says that
_CODE: Final = re.compile(r":\s+((?=[A-Z]*[0-9])[0-9A-Z]{5}): ")  # not the word FATAL
_LOCATION: Final = re.compile(r"\n(LOCATION|SCHEMA NAME|DETAIL|HINT|CONTEXT):.*", re.DOTALL)
_SECRET: Final = re.compile(
    r"((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)|(://[^\s:/@]*:)[^\s@]*(?=@)", re.IGNORECASE
)


def judge(phase: Phase, sqlstate: str | None) -> Verdict:
    """Say what a code means in a phase."""
    if sqlstate is None:
        return AWAY
    verdict = TABLE.get((phase, sqlstate)) or TABLE.get((None, sqlstate))
    if verdict is not None:
        return verdict
    if phase is Phase.STREAM and sqlstate.startswith(_VALUE_CLASS):
        return _UNDECODABLE
    return _FINAL if sqlstate[:2] in _REFUSING_CLASSES else _MAY_PASS


def error_of(phase: Phase, message: str, sqlstate: str | None, secret: str | None) -> SourceError:
    """Make the exception for an error of the server or of libpq.

    Args:
        phase: phase in which it came.
        message: the text that came; may span lines, and repeat parts of the dsn.
        sqlstate: the code, or None; in a text of libpq's it is looked for.
        secret: the password, to be cut out of the text.
    """
    if sqlstate is None and (found := _CODE.search(message)):
        sqlstate = found.group(1)
    verdict = judge(phase, sqlstate)
    if sqlstate is None:
        verdict = next((of for text, of in _LOCAL.items() if re.search(text, message)), verdict)
    if phase is Phase.CONNECT and _OF_A_POOLER in message:
        verdict = refuse(POOLED)
    text = redact(_LOCATION.sub("", message), secret)
    if phase is Phase.STREAM and sqlstate is not None and sqlstate.startswith(_VALUE_CLASS):
        text = "an expression failed"  # the server's text may repeat a value of a row
    return verdict.error_class(
        f"{phase.value}: {text or 'the connection ended'}; {verdict.advice}", sqlstate
    )


def redact(message: str, secret: str | None) -> str:
    """Make one line of a message, without anything that is or looks like a password."""
    if secret:
        message = message.replace(secret, "***")
    hidden = _SECRET.sub(lambda match: f"{match.group(1) or match.group(3)}***", message)
    return " ".join(hidden.split())
