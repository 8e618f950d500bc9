"""Sessions of Spark."""

import contextlib

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gaussdecode.errors import ConfigError


def check_classic(spark: SparkSession, what: str) -> None:
    """See that a session is not of Spark Connect.

    Args:
        spark: running.
        what: what needs that, as the beginning of a sentence.

    Raises:
        ConfigError: it is; says what can be done with it.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(
            f"{what} cannot be done in a session of Spark Connect: use one of Spark itself. apply without --catalog, "
            "compact, current, history, changelog, changes and the stream source work with Spark Connect"
        )


def beside(spark: SparkSession) -> SparkSession:
    """A session with the settings of another, without its views and its current catalog.

    Spark folds case in names of views, so one that somebody registered would stand for another
    table; and nothing that is done there changes what the other session is at.
    """
    session = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if session.conf.get(name, None) != value:
            with contextlib.suppress(PySparkException):  # what is fixed for the process
                session.conf.set(name, value)
    return session
