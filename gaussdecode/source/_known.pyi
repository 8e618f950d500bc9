from typing import final

@final
class KnownMessages:
    count: int
    def __init__(self) -> None: ...
    def seen(self, message: bytes, oid: int) -> bool: ...
