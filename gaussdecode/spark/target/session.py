"""Check and derive Spark sessions."""

import contextlib

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gaussdecode.errors import ConfigError


def check_classic(spark: SparkSession, what: str) -> None:
    """Refuse a Spark Connect session.

    Args:
        spark: a running session.
        what: operation that needs a classic session; begins the error sentence.

    Raises:
        ConfigError: the session is Spark Connect; the text says what works there.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(
            f"{what} cannot be done in a session of Spark Connect: use one of Spark itself. apply without --catalog, "
            "compact, current, history, changelog, changes and the stream source work with Spark Connect"
        )


def beside(spark: SparkSession) -> SparkSession:
    """A second session with the same settings, without the first one's views and current catalog.

    Spark ignores case in view names, so a user's view could hide a table. And statements there do not
    change the state of the user's session.
    """
    session = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if session.conf.get(name, None) != value:
            with contextlib.suppress(PySparkException):  # what is fixed for the process
                session.conf.set(name, value)
    return session
