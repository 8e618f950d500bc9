from gaussdecode.serve.outputs._rows import Writer

class Wal2JsonWriter(Writer):
    def __init__(
        self,
        *,
        actions: bytes,
        has_transactions: bool,
        has_xids: bool,
        has_times: bool,
        has_origins: bool,
        has_lsns: bool,
        quotes_numbers: bool,
        added_prefixes: bytes,
        filtered_prefixes: bytes,
    ) -> None: ...
    def set_origins(self, origins: tuple[str | None, ...]) -> None: ...
