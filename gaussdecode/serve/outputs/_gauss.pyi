from gaussdecode.serve.outputs._rows import Writer

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
