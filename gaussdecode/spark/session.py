"""Sessions of Spark."""

import contextlib

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


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
