"""What is a place: directories, URLs with settings, and what is refused without repeating secrets."""

import pickle
from pathlib import Path

import pytest

from gaussdecode.errors import ConfigError
from gaussdecode.spark.log.place import ObjectPath, place_of


def test_settings_of_a_store() -> None:
    """They stand after the question mark, travel with the place, and are in no message."""
    text = "s3a://lake/a b/x/?endpoint=http://h:9&allow-http=true&timeout=5s&credentials-file=/k"
    found = pickle.loads(pickle.dumps(place_of(text)))
    assert isinstance(found, ObjectPath)
    assert found == place_of(text)
    assert str(found / "data/t") == "s3://lake/a b/x/data/t"
    settings = found.settings
    assert (settings.endpoint, settings.allow_http, settings.timeout) == ("http://h:9", True, 5.0)
    assert settings.credentials_file == Path("/k")
    path = found / "data/t"
    assert (path.name, path.parent) == ("t", found / "data")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("here", str(Path("here").absolute())),
        ("file:///srv/a%20b", "/srv/a b"),
        ("gs://lake", "gs://lake"),
        ("webhdfs://namenode:9870/user/a%20b/", "webhdfs://namenode:9870/user/a%20b"),
        ("abfs://c@a.dfs.core.windows.net/p/", "abfss://c@a.dfs.core.windows.net/p"),
    ],
)
def test_places(text: str, place: str) -> None:
    """A path is a path; names that other programs use are taken too."""
    assert str(place_of(text)) == place


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("s3://lake/x?aws_secret_access_key=hush", "there is no option 'aws_secret_access_key'"),
        ("s3://id:hush@lake/x", "is no place; allowed: a directory"),
        ("s3://lake/x#hush", "is no place"),
        ("s3://", "is no place"),
        ("ftp://hush/x", "is no place; allowed"),
        ("hdfs://hush@namenode/x", "is no place; allowed"),
        ("file://hush/x", "is no place"),
        (Path("s3://lake/x"), "lost a slash"),
        ("s3://lake/x?timeout=hush", "timeout has the wrong form; allowed: 1s to 1h"),
        ("s3://lake/x?endpoint=https://id:hush@h", "endpoint has the wrong form; allowed: a URL"),
        ("s3://lake/x?credentials-file=hush", "credentials-file has the wrong form"),
    ],
)
def test_what_is_none_is_refused(given: str | Path, said: str) -> None:
    """With what is allowed, and without what may be a secret."""
    with pytest.raises(ConfigError) as refused:
        place_of(given)
    assert said in str(refused.value)
    assert "hush" not in str(refused.value)
