"""Sessions of Spark, and their settings for a while."""

import contextlib
from collections.abc import Iterator, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


@contextlib.contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set settings of a session for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


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
