"""Jars of Delta Lake, Iceberg, JDBC, S3Proxy and Hadoop, and each Spark that the first two have jars for.

usage: python tests/kit/jars.py [4.0|4.1|4.2 ...]

Neither of those has a jar for the newest Spark, so their tests run in a process of their own with
another, which is unpacked below ``.venv`` beside the newest one. Without a version it is the oldest,
and S3Proxy comes with it: what the tests need; the others are for `make test-spark-versions`. Jars
come from Maven's local repository, by `mvn` where that is installed, else from Maven Central; each has
the checksum that was looked at when it was chosen. Imports nothing but the standard library.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

OLDEST: Final = "4.0"
RELEASES: Final[Mapping[str, str]] = {OLDEST: "4.0.2", "4.1": "4.1.4", "4.2": "4.2.1"}
"""By version of Spark, the release of it that is fetched, as `locked` has it with its checksum."""
_STORE: Final = Path(sys.prefix) / "jars"
_LOCAL: Final = Path.home() / ".m2" / "repository"
_CENTRAL: Final = "https://repo1.maven.org/maven2"
_SECONDS: Final = 120

LAKE: Final[Mapping[str, Sequence[str]]] = {
    OLDEST: (
        "io.delta:delta-spark_4.0_2.13:4.4.0",
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    ),
    "4.1": (
        "io.delta:delta-spark_4.1_2.13:4.4.0",
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    ),
    "4.2": ("io.delta:delta-spark_4.2_2.13:4.4.0",),
}
"""By version of Spark, the jars of `gaussdecode.spark.target.formats.PAIRS`; a test compares the two."""
DELTA_STORAGE: Final = "io.delta:delta-storage:4.4.0"
"""What Delta Lake wants beside its jar, with each Spark."""
POSTGRES: Final = "org.postgresql:postgresql:42.7.8"
"""What a catalog of Iceberg's speaks with PostgreSQL by."""
OPENGAUSS: Final = "org.opengauss:opengauss-jdbc:5.1.0-og"
"""What the documents of openGauss and GaussDB follow a slot by."""
HADOOP: Final = (
    "org.apache.hadoop:hadoop-client-minicluster:3.4.1",
    "junit:junit:4.13.2",
    "javax.xml.bind:jaxb-api:2.3.1",
)
"""Hadoop's servers, and what they want beside the jars of Spark 4.0."""
S3PROXY: Final = "org.gaul:s3proxy:3.3.0:jar-with-dependencies"
_SHA256: Final = {
    LAKE["4.0"][0]: "49e899667168b9412f83cbe894ce264107d7b896d6c5e12edca4e216845c1104",
    LAKE["4.0"][1]: "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc",
    LAKE["4.1"][0]: "75a9400986853c061f5109f012547de2545a5759e5e752e5ef633dabe16a4f10",
    LAKE["4.1"][1]: "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    LAKE["4.2"][0]: "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    DELTA_STORAGE: "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    POSTGRES: "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
    OPENGAUSS: "bd23905752b3256f21355f3b1c42cff5df07e9ac7e3b6fcfd318347026d8c567",
    HADOOP[0]: "5b90be54a39d856f237a4530e25f62aea4b67c180c73b5cfb1aff35c502b2d29",
    HADOOP[1]: "8e495b634469d64fb8acfa3495a065cbacc8a0fff55ce1e31007be4c16dc57d3",
    HADOOP[2]: "88b955a0df57880a26a74708bc34f74dcaf8ebf4e78843a28b50eae945732b06",
    S3PROXY: "7f9e895bf6694a7e0296ffb49c0c3f1b87cd5ea92bfd55f6faf56f6f821f5592",
}


def spark_of(minor: str) -> Path:
    """Where a Spark is unpacked: what PYTHONPATH has to be for it."""
    return Path(sys.prefix) / f"pyspark-{minor}"


SPARK_40: Final = spark_of(OLDEST)


def jars(minor: str = OLDEST) -> list[Path]:
    """Paths of those that tests of the lake need with a Spark, fetched if need be."""
    return [jar(coordinate) for coordinate in (*LAKE[minor], DELTA_STORAGE, POSTGRES)]


def jar(coordinate: str) -> Path:
    """Path of one, fetched if need be."""
    group, name, version, *classifier = coordinate.split(":")
    stem = "-".join((name, version, *classifier))
    place = Path(*group.split("."), name, version, f"{stem}.jar")
    kept = _STORE / place.name
    for path in (kept, _LOCAL / place):
        if path.exists() and _sum(path) == _SHA256[coordinate]:
            return path
    if shutil.which("mvn") is not None and _fetch_with_maven(coordinate, _LOCAL / place):
        return _LOCAL / place
    _download(f"{_CENTRAL}/{place}", kept, _SHA256[coordinate])
    return kept


def _fetch_with_maven(coordinate: str, path: Path) -> bool:
    """Let Maven fetch one; whether it is there then."""
    group, name, version, *classifier = coordinate.split(":")
    artifact = ":".join((group, name, version, "jar", *classifier))
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get"
    command = ["mvn", "-q", "-B", goal, f"-Dartifact={artifact}", "-Dtransitive=false"]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=3 * _SECONDS)
    return path.exists() and _sum(path) == _SHA256[coordinate]


def _download(url: str, path: Path, wanted: str) -> None:
    """Fetch a file.

    Raises:
        RuntimeError: it is not the file that was chosen.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with urllib.request.urlopen(url, timeout=_SECONDS) as source, part.open("wb") as file:
        shutil.copyfileobj(source, file)
    if _sum(part) != wanted:
        raise RuntimeError(f"{url} is not the file that the tests were made with")
    part.rename(path)


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_spark(minor: str) -> None:
    """Unpack a Spark beside the newest; Py4J is the same for all.

    From its source, which holds all of it: pip would pack a wheel of it first, a minute of work.

    Raises:
        subprocess.CalledProcessError: pip could not fetch it; it has said why.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--no-binary", ":all:", "--require-hashes"]
    locked = Path(__file__).with_name("locked") / f"pyspark-{minor}.txt"
    place = spark_of(minor)
    part = place.with_name(f"{place.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        subprocess.run([*command, "--dest", name, "--requirement", str(locked)], check=True)
        shutil.unpack_archive(next(Path(name).iterdir()), name)
        (source,) = (path for path in Path(name).iterdir() if path.is_dir())
        for of_java in (source / "deps").iterdir():
            of_java.rename(source / "pyspark" / of_java.name)
        part.mkdir()
        shutil.move(source / "pyspark", part)
    part.rename(place)


def main() -> int:
    """Make the asked versions of Spark and their jars available, else what every run of the tests needs."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("minor", nargs="*", help=f"version of Spark: {', '.join(RELEASES)}")
    asked: list[str] = parser.parse_args().minor
    # Not by `choices`, which Python 3.11 refuses an empty list by.
    if unknown := [minor for minor in asked if minor not in RELEASES]:
        parser.error(f"no jars for Spark {', '.join(unknown)}: give {', '.join(RELEASES)}")
    for minor in asked or [OLDEST]:
        if not spark_of(minor).exists():
            print(f"fetching Spark {minor} from PyPI (some hundred MB)", file=sys.stderr)
            fetch_spark(minor)
        jars(minor)
    if not asked:
        jar(S3PROXY)
        jar(OPENGAUSS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
