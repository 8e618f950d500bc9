"""Classify errors of GaussDB: what each means to the operator, and whether to try again.

GaussDB's codes say little (a missing slot and a bug share one), so its texts are looked at first. A text that is
not listed is judged by its SQLSTATE, as PostgreSQL's are. Ten wrong passwords lock the account, and the
daemon's retries count too. So a refused password is not tried again until its file has another.
"""

import re
from collections.abc import Mapping
from typing import Final

from gaussdecode.errors import GaussDecodeError, SourceError, WireError
from gaussdecode.protocol.gaussdb.messages import notice_fields
from gaussdecode.source.sqlstate import Phase, Verdict, judge, not_let_in, redact, refuse, retry

_HBA: Final = (
    "pg_hba.conf needs two lines for this user and address, with method sha256: one for database "
    "replication (the stream) and one for the database itself (the catalogue)"
)
_PRIMARY: Final = "slots are created, dropped and advanced on the primary; connect to it"

# First match decides; texts of the server, not translated by it.
_TEXTS: Final[Mapping[str, Verdict]] = {
    r"should connect HA port": refuse(
        "thread pool mode takes replication at the HA port only: set source.ha-port, by habit the "
        "SQL port plus one"
    ),
    r"local listen ip and port is not for the gsql client": refuse(
        "this is the HA port, which takes replication only: give the SQL port in source.dsn and "
        "this one as source.ha-port"
    ),
    r"hba\.conf entry|hba\.conf rejects": not_let_in(_HBA),
    r"Forbid remote connection with (initial user|trust)": not_let_in(
        "the server lets neither its initial user nor method trust in from elsewhere: make a role "
        "with LOGIN and REPLICATION and a password"
    ),
    r"account has been locked": not_let_in(
        "the DBA unlocks it with ALTER USER ... ACCOUNT UNLOCK; correct the password first"
    ),
    r"password has (been )?expired": not_let_in("give the role a new password with ALTER ROLE"),
    r"Invalid username/password": not_let_in(
        "check the user and the password file; ten wrong ones lock the account"
    ),
    r'replication slot "?[^"]*"? does not exist|Invalid logical replication slot': refuse(
        "create it with `gaussdecode slot create`; if it was dropped, changes are lost"
    ),
    r"slot .* is already active": retry(
        "another connection reads this slot; after a broken one this passes within its "
        "sender-timeout"
    ),
    r"slot .* already exists": refuse("drop it first, or take another name"),
    r"slot .* was not created in this database": refuse(
        "correct dbname in source.dsn, or name another slot"
    ),
    r"cannot use physical replication slot": refuse("name a logical slot"),
    r"logical decoding requires wal_level": refuse(
        "the DBA sets wal_level = logical and restarts the server"
    ),
    r"logical decode dispatcher": retry(
        "the server allows 20 parallel streams at most, and no more than max_replication_slots"
    ),
    r"all replication slots are in use": refuse("drop one, or raise max_replication_slots"),
    r"walsender closed because of role is primary": refuse(
        "standby-connection: true was asked for and this is the primary: give a standby's "
        "address, or set it to false"
    ),
    r'option ".*" = ".*" is unknown|could not parse value': refuse(
        "this version of the server does not take the option; see `gaussdecode check`"
    ),
    r"toast chunk missing": refuse(
        "the server cannot put a large value together in parallel mode; read this part with "
        "parallel-decode-num: 1"
    ),
    r"pmState is not run|couldn't advance in recovery|recovery is in progress": refuse(_PRIMARY),
    r"cannot move slot": refuse("a slot moves forward only, and not beyond what is flushed"),
    r"replication command, syntax error|should be shorter than": refuse(
        "the server's pre-parser refused the command: unbalanced quotes or brackets in a value, "
        "or more than 1023 bytes"
    ),
    r"must be system ?admin|must be superuser or replication|permission denied": not_let_in(
        "the role needs REPLICATION, or membership in gs_role_replication"
    ),
    r"role \S+ is not permitted to|Permission denied to use replication": not_let_in(_HBA),
    r"after promotion": retry("the standby became the primary"),
    r"insufficient data left in message": refuse(
        "the server does not understand our status: it is no GaussDB; check source.kind"
    ),
    r"too many clients|connection limit exceeded": retry("the server has no connection left"),
    r"starting up|shutting down|in recovery mode": retry("this may pass by itself"),
}
_COMPILED: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), verdict) for pattern, verdict in _TEXTS.items()
)
_LOGIN_CODES: Final = ("28000", "28P01")
_LOGIN: Final = not_let_in(f"check the user and the password file; {_HBA}")
_VALUE_CLASS: Final = "22"
_OPTION_CODE: Final = "22023"


def verdict_of(phase: Phase, message: str, sqlstate: str | None) -> Verdict:
    """Say what a text and its code mean in a phase."""
    for pattern, verdict in _COMPILED:
        if pattern.search(message):
            return verdict
    return _LOGIN if sqlstate in _LOGIN_CODES else judge(phase, sqlstate)


def server_error(
    phase: Phase, fields: Mapping[str, str], secrets: tuple[str, ...] = ()
) -> SourceError:
    """Make the exception for an ErrorResponse.

    Args:
        phase: phase in which it came.
        fields: fields of the message, by letter.
        secrets: secrets to be cut out of the text.
    """
    message, sqlstate = fields.get("M", ""), fields.get("C")
    verdict = verdict_of(phase, message, sqlstate)
    if sqlstate == _OPTION_CODE and "H" in fields:
        message = f"{message} ({fields['H']})"  # the range that is allowed
    text = redacted(message, secrets)
    if phase is Phase.STREAM and _may_hold_value(sqlstate):
        text = "an expression failed"  # the server's text may repeat a value of a row
    return _made(phase, text or "the server gave no reason", verdict, sqlstate)


def _may_hold_value(sqlstate: str | None) -> bool:
    return sqlstate is not None and sqlstate.startswith(_VALUE_CLASS) and sqlstate != _OPTION_CODE


def broken(phase: Phase, message: str, secrets: tuple[str, ...] = ()) -> SourceError:
    """Make the exception for a connection that failed without a word of the server's."""
    text = redacted(message, secrets) or "the connection ended"
    return _made(phase, text, judge(phase, None), None)


def error_of_body(body: bytes, secrets: tuple[str, ...] = ()) -> GaussDecodeError:
    """Make the exception for an ErrorResponse in the stream; a damaged one is a WireError."""
    try:
        return server_error(Phase.STREAM, notice_fields(body), secrets)
    except WireError as error:
        return error


def redacted(message: str, secrets: tuple[str, ...]) -> str:
    """Make one line of a message, without anything that is or looks like a password."""
    for secret in secrets:
        message = message.replace(secret, "***")
    return redact(message, None)


def _made(phase: Phase, text: str, verdict: Verdict, sqlstate: str | None) -> SourceError:
    return verdict.error_class(f"{phase.value}: {text}; {verdict.advice}", sqlstate)
