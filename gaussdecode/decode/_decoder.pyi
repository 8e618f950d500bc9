from gaussdecode.ipc.control import Control
from gaussdecode.ipc.ring import Ring

class DecoderLoop:
    release_count: int
    def __init__(
        self,
        raw: Ring,
        decoded: Ring,
        control: Control,
        decoder_index: int,
        kept_bytes: int = ...,
        max_row_bytes: int = ...,
        defers_large_rows: bool = ...,
    ) -> None: ...
    def run(self) -> None: ...
