"""A run in this process that dies at a step of its failpoints, where a process cannot be killed."""

from collections.abc import Callable

from gaussdecode.spark.target.failpoint import Step


class Killed(BaseException):
    """What stands for the end of the process."""


def die_at(step: Step, count: int) -> Callable[[Step], None]:
    """A failpoint that ends the run when a step is reached for the count-th time.

    From there on no step is taken: another thread's table may fail in the same moment, be read
    again, and hide that this one died.
    """
    left = [count]

    def reach(at: Step) -> None:
        left[0] -= at is step
        if left[0] <= 0:
            raise Killed

    return reach
