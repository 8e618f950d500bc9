"""How a command with Spark ends."""

import subprocess
import sys
import threading

import pytest

from gaussdecode.console.spark_session import EndedBy


def test_what_fails_before_a_stop_is_told() -> None:
    """It is an error as any other."""
    with pytest.raises(ValueError, match="bad"), EndedBy(threading.Event()):
        raise ValueError("bad")


def test_what_fails_of_a_stop_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """Only that it begins again; an interrupt goes through."""
    stop = threading.Event()
    stop.set()
    with EndedBy(stop):
        raise ConnectionResetError("Spark has gone")
    assert "repeats the unfinished work" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt), EndedBy(stop):
        raise KeyboardInterrupt


@pytest.mark.integration
def test_names_are_no_settings() -> None:
    """Spark puts no value of a setting in place of a name or a text."""
    code = (
        "from gaussdecode.console.spark_session import spark_session\n"
        "with spark_session('local[1]') as spark:\n"
        "    print(spark.sql(\"SELECT '${env:HOME}' AS `${env:PATH}`\").toJSON().collect())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == '[\'{"${env:PATH}":"${env:HOME}"}\']\n'
