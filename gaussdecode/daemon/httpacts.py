"""Take the acts of an operator as ``POST /ctl`` of the monitoring port, with a bearer token or a client's certificate.

The content and the answer are those of the socket (`daemon.control`). The token is read for each request,
so that it can be changed at any time, and is compared in constant time. Without a configured token only a client that
has shown a good certificate may act (`status.http`). A page of another origin cannot ask: no browser sends it an Authorization without asking us
first, which is answered with an error.
"""

import dataclasses
import hmac
import json
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Final

from gaussdecode.daemon.control import Answer
from gaussdecode.daemon.status.http import MAX_SECONDS, Page
from gaussdecode.errors import ConfigError
from gaussdecode.logs import Event, get_logger
from gaussdecode.settings.dsn import read_secret

KEY: Final = "monitoring.control-token-file"
_CA: Final = "monitoring.tls-client-ca-file"
LEAST_CHARACTERS: Final = 16
_log = get_logger("daemon")


class HttpActs:
    """Answers ``POST /ctl``.

    Args:
        ask: carries an act out, as `control.ActQueue.ask`.
        token_file: file with the token; None where acts are refused.
    """

    def __init__(
        self, ask: Callable[[object, object, str, float], Answer], token_file: Path | None
    ) -> None:
        self._ask = ask
        self._token_file = token_file

    def __call__(self, authorization: str, by: str, content: bytes, is_certified: bool) -> Page:
        """See `status.http.Post`."""
        status, reason = (HTTPStatus.OK, "") if is_certified else self._refusal(authorization)
        if status is not HTTPStatus.OK:
            _log.warning(Event.ACT_REFUSED, by=by, reason=reason)
            return _page(status, Answer(is_done=False, text=reason))
        try:
            request = json.loads(content)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            text = 'no request: JSON like {"act": "pause"} is allowed'
            return _page(HTTPStatus.BAD_REQUEST, Answer(is_done=False, text=text))
        # The server ends a connection after MAX_SECONDS.
        answer = self._ask(request.get("act"), request.get("table"), by, MAX_SECONDS / 2)
        return _page(HTTPStatus.OK if answer.is_done else HTTPStatus.CONFLICT, answer)

    def _refusal(self, authorization: str) -> tuple[HTTPStatus, str]:
        """Why a client may not ask; OK if it may."""
        if self._token_file is None:
            reason = f"no act over HTTP: {KEY} is not set, and the client has shown no certificate of {_CA}"
            return HTTPStatus.FORBIDDEN, reason
        try:
            token = read_secret(self._token_file, KEY)
        except ConfigError as error:
            _log.error(Event.ERROR, reason=str(error))
            return HTTPStatus.FORBIDDEN, f"no act over HTTP: {KEY} cannot be used; see the log"
        if len(token) < LEAST_CHARACTERS:
            reason = f"no act over HTTP: {KEY} has fewer than {LEAST_CHARACTERS} characters"
            return HTTPStatus.FORBIDDEN, reason
        if not hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
            return HTTPStatus.UNAUTHORIZED, "the token is wrong: Authorization: Bearer TOKEN"
        return HTTPStatus.OK, ""


def _page(status: HTTPStatus, answer: Answer) -> Page:
    return status, "application/json", json.dumps(dataclasses.asdict(answer)).encode()
