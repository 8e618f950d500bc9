from typing import final

@final
class Transcoder:
    encoding: str
    def __init__(self, encoding: str) -> None: ...
    def transcode_bytes(self, text: bytes) -> tuple[bytes, bool]: ...
