"""How long the reader leaves the socket alone, found out while it reads.

A walsender sends every message by a call of its own. While the reader's window is open, each
such call takes it through the whole of TCP, to the reader's queue and perhaps to its wake-up:
several microseconds. While the window is closed, it only adds to the sender's buffer: half a
microsecond. So a reader that lets the stream pile up, and takes it in large pieces, has a
server that sends two or three times as much. How long it may wait, before the sender's buffer
is full too and the server stands still, depends on the kind of the socket, its buffers, on rows
and machine: that is found out here.

Given what has come, and when. A *pace* is a rest between reads, or gathering (0, see `_receive`).

**A stream** is where two short windows in a row bring `STREAM_RATE`; below half of it nothing is
gained by a pace, and the reader gathers, so that a lone transaction is read at once. A new
connection is taken for a stream until it has brought little in `ASSUMED_US`: gathering opens the
reader's window, which is slow to close again.

**Windows.** A pace settles for 20 ms, then what comes in 150 ms is its rate; time in which nobody
read, because rings were full, is taken off. A window in which the source had nothing for
20 ms is thrown away, and a trial with it; after a second of that the stream is over. Less
counts: after a short rest the socket of a server that sends slowly is often empty, and to throw
that away would make such a rest last for ever.

**Choice.** The best pace is used. Others are tried, one window each between two of the best:
some seconds after the first stream has begun, those beside a new best one at once; then each
some seconds after its last trial, the later the worse it was. One that is clearly worse after a
third of its window is given up. One that brings 3 % more twice, or a quarter more once, is the
best from there on. When the rate of the best changes by a third and stays so, the machine or
the rows have changed, and all are tried again.

Knows no socket and no clock. `tests/source/test_pace.py` plays machines to it.
"""

cdef extern from *:
    """
    static const int64_t gd_rest_us[6] = {0, 300, 7000, 14000, 22000, 32000};
    """
    const int64_t[PACE_COUNT] REST_US "gd_rest_us"

cdef enum:
    SETTLE_US = 20000
    WINDOW_US = 150000
    GIVE_UP_US = 50000          # into a window
    IDLE_US = 20000             # of a source that has nothing; arbitrary
    QUIET_US = 1000000          # likewise, in all, without a whole window: the stream is over
    STREAM_RATE = 2000000       # bytes per second; arbitrary
    STREAM_WINDOWS = 2
    SHIFT_WINDOWS = 3
    ASSUMED_US = 100000         # that a new connection is taken for a stream; all are arbitrary
    LONG_ASSUMED_US = 2000000   # likewise, where it brings much and no window without a pause
    SOON_US = 3000000           # before the first trials,
    GATHERED_US = 1500000       # and where the first choice was to gather
    BETTER_US = 1000000
    NEAR_US = 2000000           # until a trial of what was nearly as good
    RETRY_US = 4000000
    LONGEST_US = 300000000

PACES = ("gather", "300us", "7ms", "14ms", "22ms", "32ms")


cdef class Pacer:
    """Chooses the pace of one connection.

    Args:
        first: number of the pace that is tried first.
    """

    def __cinit__(self, int first=PACE_GATHER):
        cdef int index
        if not 0 <= first < PACE_COUNT:
            raise ValueError(f"no pace {first}")
        self.first = self.best = first
        self.pace = first
        self.is_streaming = self.is_assumed = first != PACE_GATHER
        self.winner = -1
        for index in range(PACE_COUNT):
            self.wait_us[index] = RETRY_US

    cdef int64_t rest_us(self) noexcept nogil:
        return REST_US[self.pace]

    cdef double rate_of(self, int pace) noexcept nogil:
        return self.rate[pace]

    cdef void pause(self, int64_t idle_us) noexcept nogil:
        cdef int64_t spent_us = self.seen_us - self.first_us
        if self.is_assumed and self.seen_bytes and spent_us >= ASSUMED_US and (
            spent_us >= LONG_ASSUMED_US
            or <double>self.seen_bytes * 1e6 < <double>(STREAM_RATE / 2) * <double>spent_us
        ):
            self.is_assumed = self.is_streaming = False
            self.begin(PACE_GATHER)
        elif self.is_streaming and idle_us < IDLE_US:
            return
        elif self.is_streaming and self.quiet_us + idle_us >= QUIET_US:
            self.is_streaming = False
            self.streak = 0
            self.quiet_us = 0
            self.begin(PACE_GATHER)
        elif self.is_streaming and self.pace != self.best:
            self.quiet_us += idle_us
            self.due_us[self.pace] = self.seen_us + self.wait_us[self.pace]
            self.begin(self.best)
        else:
            self.quiet_us += idle_us
            self.begin(self.pace)

    cdef void begin(self, int pace) noexcept nogil:
        """Take a pace; its window begins when it has settled."""
        self.pace = pace
        self.begun_us = self.window_us = 0

    cdef bint note(self, int64_t now_us, uint64_t total_bytes, int64_t stalled_us) noexcept nogil:
        cdef int64_t spent_us
        cdef double rate
        if self.seen_bytes == 0:
            self.first_us = now_us
        self.seen_bytes = total_bytes
        self.seen_us = now_us
        if self.begun_us == 0:
            self.begun_us = now_us
        elif self.window_us == 0:
            if not self.is_streaming or now_us - self.begun_us >= SETTLE_US:
                self.window_us = now_us
                self.window_bytes = total_bytes
                self.window_stalled_us = stalled_us
        else:
            spent_us = now_us - self.window_us - (stalled_us - self.window_stalled_us)
            if now_us - self.window_us < GIVE_UP_US or spent_us <= 0:
                return False
            rate = <double>(total_bytes - self.window_bytes) * 1e6 / <double>spent_us
            if now_us - self.window_us >= WINDOW_US or not self.is_streaming or (
                self.pace != self.best and rate < 0.6 * self.rate[self.best]
            ):
                self.finish(rate, now_us)
                return True
        return False

    cdef void finish(self, double rate, int64_t now_us) noexcept nogil:
        self.is_assumed = False
        self.quiet_us = 0
        if not self.is_streaming:
            self.look_for_stream(rate, now_us)
        elif self.pace == self.best and rate < STREAM_RATE / 2:
            self.rate[self.best] = rate
            self.is_streaming = False
            self.streak = 0
            self.begin(PACE_GATHER)
        elif self.pace == self.best:
            self.follow(rate, now_us)
        else:
            self.judge(rate, now_us)

    cdef void look_for_stream(self, double rate, int64_t now_us) noexcept nogil:
        self.streak = self.streak + 1 if rate >= STREAM_RATE else 0
        self.is_streaming = self.streak == STREAM_WINDOWS
        if self.is_streaming:
            self.streak = 0
            self.rate[<int>PACE_GATHER] = rate
            if 0 < self.rate[self.best] < rate:     # that is how the stream before ended
                self.best = PACE_GATHER
        self.begin(self.best if self.is_streaming else <int>PACE_GATHER)

    cdef void follow(self, double rate, int64_t now_us) noexcept nogil:
        """The best pace once more: is it what it was? Then another may be tried."""
        cdef double before = self.rate[self.best]
        cdef int index
        if not self.has_followed:   # the first stream
            self.has_followed = True
            for index in range(PACE_COUNT):
                self.due_us[index] = now_us + (SOON_US if self.first else GATHERED_US)
        if before and (rate < 0.75 * before or rate > 1.34 * before):
            self.streak += 1
        else:
            self.streak = 0
        if self.streak == SHIFT_WINDOWS:
            self.streak = 0
            before = 0
            for index in range(PACE_COUNT):
                self.due_us[index] = now_us
                self.wait_us[index] = RETRY_US
        if self.streak == 0:
            self.rate[self.best] = 0.75 * before + 0.25 * rate if before else rate
        self.begin(self.best if self.streak else self.choose(now_us))

    cdef int choose(self, int64_t now_us) noexcept nogil:
        """The pace whose trial is most overdue, or of these the nearest one; the best when none is.

        One that brought more than the best does now is overdue a second after its last trial.
        """
        cdef int index, chosen = self.best
        cdef int64_t due_us, earliest = now_us + 1
        for index in range(PACE_COUNT):
            due_us = self.due_us[index]
            if self.rate[index] > 1.05 * self.rate[self.best]:
                due_us = min(due_us, due_us - self.wait_us[index] + BETTER_US)
            if index != self.best and (due_us < earliest or (
                due_us == earliest and abs(index - self.best) < abs(chosen - self.best)
            )):
                earliest = due_us
                chosen = index
        return chosen

    cdef void judge(self, double rate, int64_t now_us) noexcept nogil:
        """After a trial."""
        cdef int tried = self.pace, before = self.best
        cdef double best = self.rate[before]
        cdef int index
        self.trial_count += 1
        self.rate[tried] = rate
        if rate > 1.25 * best or rate > 1.03 * best and self.winner == tried:
            self.change_count += 1
            self.best = tried
            self.winner = -1
            self.wait_us[before] = self.wait_us[tried] = RETRY_US
            self.due_us[before] = now_us + RETRY_US
            for index in range(tried - 1, tried + 2):
                if PACE_GATHER < index < PACE_COUNT and index != before:
                    self.due_us[index] = now_us
        elif rate > 1.03 * best:
            self.winner = tried
            self.due_us[tried] = 0      # it is tried next
        else:
            if self.winner == tried:
                self.winner = -1
            if rate < 0.5 * best:
                self.wait_us[tried] *= 8
            elif rate < 0.9 * best:
                self.wait_us[tried] *= 2
            else:
                self.wait_us[tried] = NEAR_US
            if self.wait_us[tried] > LONGEST_US:
                self.wait_us[tried] = LONGEST_US
            self.due_us[tried] = now_us + self.wait_us[tried]
        self.begin(self.best)

    # ---- for tests

    def feed(self, int64_t now_us, uint64_t total_bytes, int64_t stalled_us=0):
        """As the loop does it; returns how long to rest, in microseconds."""
        self.note(now_us, total_bytes, stalled_us)
        return self.rest_us()

    def feed_nothing(self, int64_t idle_us=IDLE_US):
        """The source had nothing for so long."""
        self.pause(idle_us)

    def rates(self):
        """Bytes per second of each pace at its last window; 0 where it was never tried."""
        return [self.rate[index] for index in range(PACE_COUNT)]
