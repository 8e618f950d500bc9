from gaussdecode.serve.outputs._rows import Writer

TABLE: str
INSERT: str
UPDATE: str
DELETE: str
OLD_KEY: str
NEW_TUPLE: str
OF_JSON: tuple[str, str, str, str, str, str, str, str]
JSON_OPERATIONS: tuple[str, str, str]
OF_SQL: tuple[str, str, str, str, str]
HEARTBEAT: str
HEARTBEAT_LETTER: bytes
LAST: bytes

class GaussWriter(Writer):
    def __init__(
        self,
        *,
        style: bytes,
        has_xids: bool,
        begin_has_xid: bool,
        has_times: bool,
        has_users: bool,
        has_origins: bool,
        batch: int,
        is_by_csn: bool,
        is_lazy: bool,
    ) -> None: ...
    def set_users(self, users: tuple[str | None, ...]) -> None: ...
