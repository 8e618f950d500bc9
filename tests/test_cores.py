"""What of the machine's cores is idle, as files of the kernel tell it."""

import os

from gaussdecode.host.cores import Cores, least_growth

MINE = min(os.sched_getaffinity(0))
TICKS = os.sysconf("SC_CLK_TCK")


def idle(now: float, **texts: str) -> tuple[float, ...]:
    """What is idle where only these files can be read."""
    files = {f"/{name.replace('__', '/')}": text for name, text in texts.items()}

    def read(path: str) -> str:
        if path.replace(".", "_") in files:
            return files[path.replace(".", "_")]
        raise FileNotFoundError(path)

    return Cores(read).idle_seconds(now)


def test_idle_time_is_that_of_the_cores_one_may_use() -> None:
    """Of /proc/stat only those count that the process may run on; one that waits for a disk has nothing to do."""
    stat = "cpu 1 1 1 999999 0\n" + f"cpu{MINE} 5 0 5 700 3 9\ncpu4095 0 0 0 100000 0 0\n"
    assert idle(0.0, proc__stat=stat) == (703 / TICKS,)


def test_a_quota_bounds_what_is_idle() -> None:
    """A container that uses all of its half core has nothing idle, whatever the machine has; and the other way."""
    old, new = (
        idle(
            now,
            proc__stat=f"cpu{MINE} 0 0 0 {int(free * TICKS)} 0\n",
            proc__self__cgroup="0::/pod\n",
            sys__fs__cgroup__pod__cpu_max="50000 100000\n",
            sys__fs__cgroup__pod__cpu_stat=f"usage_usec {int(used * 1e6)}\nuser_usec 1\n",
        )
        for now, free, used in ((10.0, 5000.0, 2.0), (20.0, 5009.0, 7.0))
    )
    assert least_growth(old, new) == 0.0
    assert least_growth(old, (old[0], old[1] + 4.0)) == 0.0
    assert least_growth(old, (old[0] + 3.0, old[1] + 4.0)) == 3.0


def test_nothing_has_grown_where_others_tell() -> None:
    """A file that cannot be read any more tells of nothing."""
    assert least_growth((1.0, 2.0), (100.0,)) == 0.0
    assert least_growth((), ()) == 0.0


def test_no_quota_is_no_bound() -> None:
    """The word max means that there is none."""
    found = idle(
        10.0,
        proc__stat=f"cpu{MINE} 0 0 0 100 0\n",
        proc__self__cgroup="0::/\n",
        sys__fs__cgroup__cpu_max="max 100000\n",
    )
    assert found == (100 / TICKS,)


def test_a_service_that_sees_only_processes_asks_the_control_groups() -> None:
    """With ProcSubset=pid there is no /proc/stat; the root group has what the whole machine used."""
    cores = os.cpu_count() or 1
    found = idle(10.0, sys__fs__cgroup__cpu_stat="usage_usec 4000000\n")
    assert found == (10.0 * cores - 4.0,)


def test_where_nobody_tells_nothing_is_known() -> None:
    """No file, and no figure in it."""
    assert idle(10.0) == ()
    assert idle(10.0, sys__fs__cgroup__cpu_stat="nr_periods 0\n") == ()
