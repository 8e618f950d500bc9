"""Start and stop a command's Spark session: in order, on a signal, or after Spark's Java process died."""

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gaussdecode.errors import ConfigError, SparkEndedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def spark_session(
    master: str | None, settings: Mapping[str, str] | None = None
) -> Iterator["SparkSession"]:
    """Use the session of this process, or start one and stop it afterwards.

    Args:
        master: Spark master; None for this machine.
        settings: settings of a new session.

    Raises:
        ConfigError: pyspark or Java is not installed.
        SparkEndedError: Spark's Java process has ended.
    """
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise ConfigError(
            "pyspark is not installed; pip install 'pyspark>=4.0,<5' 'pandas>=2.2,<3', or use --local"
        ) from None
    from gaussdecode.demo.java import provide_java

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # has no types
    from pyspark.errors import PySparkException

    with tempfile.TemporaryDirectory(prefix="gaussdecode-spark-") as scratch:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("gaussdecode")
        # A name of a column may be ${env:HOME}, of which Spark would take the setting's value.
        builder = builder.config("spark.sql.variable.substitute", "false")
        if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not under spark-submit
            os.environ["JAVA_HOME"] = str(provide_java(Path(scratch)))
            builder = builder.master(master or "local[*]")
            builder = builder.config("spark.ui.showConsoleProgress", "false")
            builder = builder.config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
            builder = builder.config("spark.log.level", "ERROR")
        for name, value in (settings or {}).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        try:
            yield session
        except (Py4JError, PySparkException, ConnectionError) as error:
            if _is_there(session):
                raise
            raise SparkEndedError(
                "Spark's Java process has ended by itself, or somebody killed it: see its output above. If the kernel killed it for memory (dmesg): --conf spark.driver.memory=...; "
                "run the command again, it begins where it was"
            ) from error
        finally:
            if _is_there(session):
                session.stop()


def _is_there(session: "SparkSession") -> bool:
    """Whether its Java process still answers; an error of its own counts as an answer."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    try:
        session.sparkContext.statusTracker().getActiveJobsIds()
    except (Py4JNetworkError, ConnectionError):
        return False
    except Py4JError:
        return True
    return True


class EndedBy:
    """A context that treats errors after a stop signal as a normal end.

    A terminal and systemd signal the whole process group or control group, which ends Spark's processes
    before this one can react. The next run repeats the work that fails then.

    Args:
        stop: set once a signal has come.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        """Suppress an error that the requested stop caused."""
        if not isinstance(error, Exception) or not self._stop.is_set():
            return False
        print("gaussdecode: stopped; the next run repeats the unfinished work", file=sys.stderr)
        return True
