from typing import final

@final
class KnownMessages:
    count: int
    forgotten_count: int
    held_bytes: int
    eviction_count: int
    file_bytes: int
    def __init__(
        self, memory_limit: int = ..., directory: str | None = ..., most: int = ...
    ) -> None: ...
    def seen(self, message: bytes, oid: int) -> bool: ...
