"""Errors that a client of ``gaussdecode serve`` gets as an ErrorResponse."""


class ServeError(Exception):
    """A request that cannot be carried out.

    Attributes:
        sqlstate: five characters, as PostgreSQL's appendix of error codes has them.
        message: what was wrong.
        detail: more, or None.
        hint: what to do, or None.
    """

    def __init__(
        self, sqlstate: str, message: str, detail: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message
        self.detail = detail
        self.hint = hint
