"""Notice once when the landing becomes idle, so that memory is given back to the kernel."""

from gaussdecode.host.memory import REST_SECONDS, give_back


class Idle:
    """Whether the writer rests."""

    def __init__(self) -> None:
        self._given_for = 0

    def look(self, now_ns: int, moved_ns: int) -> bool:
        """Give back what is not needed, if it is time.

        Args:
            now_ns: monotonic time.
            moved_ns: when the writer last finished something.

        Returns:
            Whether it was given back.
        """
        if moved_ns == self._given_for or now_ns - moved_ns < REST_SECONDS * 1e9:
            return False
        self._given_for = moved_ns
        give_back()
        return True
