"""List the states of a session, and what each event leads to.

By event::

                spawn       connected  collected  stopped  drained  fail    close
    new         connecting  -          -          -        -        failed  closed
    connecting  -           streaming  -          leaving  -        failed  closed
    streaming   -           -          draining   -        -        failed  closed
    draining    -           -          -          -        leaving  failed  closed
    leaving     -           leaving    -          -        -        failed  closed
    failed      -           failed     failed     failed   -        failed  closed
    closed      -           -          -          -        -        closed  closed

A reader that connects after the session has failed, or was stopped, is not answered.
"""

import enum
from collections.abc import Mapping
from typing import Final


class Life(enum.Enum):
    """Of a session."""

    NEW = "new"
    CONNECTING = "connecting"
    STREAMING = "streaming"
    DRAINING = "draining"
    LEAVING = "leaving"
    FAILED = "failed"
    CLOSED = "closed"


class Turn(enum.Enum):
    """In a session's life."""

    SPAWN = "spawn"
    CONNECTED = "connected"
    COLLECTED = "collected"
    STOPPED = "stopped"
    DRAINED = "drained"
    FAIL = "fail"
    CLOSE = "close"


_ANY_TIME: Final = {Turn.FAIL: Life.FAILED, Turn.CLOSE: Life.CLOSED}
LIFE: Final[Mapping[Life, Mapping[Turn, Life]]] = {
    Life.NEW: {Turn.SPAWN: Life.CONNECTING, **_ANY_TIME},
    Life.CONNECTING: {Turn.CONNECTED: Life.STREAMING, Turn.STOPPED: Life.LEAVING, **_ANY_TIME},
    Life.STREAMING: {Turn.COLLECTED: Life.DRAINING, **_ANY_TIME},
    Life.DRAINING: {Turn.DRAINED: Life.LEAVING, **_ANY_TIME},
    Life.LEAVING: {Turn.CONNECTED: Life.LEAVING, **_ANY_TIME},
    Life.FAILED: {
        **dict.fromkeys((Turn.CONNECTED, Turn.COLLECTED, Turn.STOPPED), Life.FAILED),
        **_ANY_TIME,
    },
    Life.CLOSED: {Turn.FAIL: Life.CLOSED, Turn.CLOSE: Life.CLOSED},
}
