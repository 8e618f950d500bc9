"""The command line: apply, query, status, compact and vacuum, as an operator runs them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit.history import History
from kit.s3 import S3

from gaussdecode.cli import main
from gaussdecode.errors import EX_CONFIG, EX_IOERR, EX_UNAVAILABLE
from gaussdecode.model.landing import EntryKind
from gaussdecode.spark import apply
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.target import local_disk
from gaussdecode.spark.target.store import Target

_QUIET_GAUSSDB = (
    "{kind: gaussdb, dsn: host=127.0.0.1 dbname=d user=u sslmode=disable, allow-insecure: true}\n"
    "decoding: {parallel-decode-num: 2, skip-empty-xacts: true}"
)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A source with a few entries."""
    source = History(tmp_path / "landing", 6)
    source.run(4)
    return source


def spark(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run ``gaussdecode spark ...``."""
    status = main(["spark", *map(str, words)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_apply_and_status(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Apply says how far it went; applied again it says that nothing was new."""
    landing, target, metrics = tmp_path / "landing", tmp_path / "target", tmp_path / "m.prom"
    last = history.writer.n - 1
    status, out, err = spark(capsys, "apply", landing, target, "--local", "--history",
                             "--metrics-file", metrics)  # fmt: skip
    assert (status, err) == (0, "")
    assert f"entry -1 to {last} of {last}" in out
    assert f"gaussdecode_spark_applied_entry{{target={json.dumps(str(target))}}} {last}" in (
        metrics.read_text()
    )
    status, out, _ = spark(capsys, "apply", landing, target, "--local", "--json")
    assert json.loads(out)["tables"] == 0
    known = f"{last}@{json.loads(out)['landing_id']}"
    assert spark(capsys, "apply", landing, target, "--local", "--to-n", known)[0] == 0
    status, out, _ = spark(capsys, "status", landing, target)
    assert f"entry {last} of {last}, 0 behind" in out


def test_gap_ends_with_the_status_of_configuration(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gap ends apply with 78 and with what to do."""
    history.writer.entry(EntryKind.GAP, history.lsn)
    status, _, err = spark(capsys, "apply", tmp_path / "landing", tmp_path / "target", "--local")
    assert status == EX_CONFIG
    assert "--accept-gaps" in err


def test_apply_that_follows_waits_for_another_writer(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One that does not follow ends with 74; one that does says so, and applies the next time."""
    landing, target = tmp_path / "landing", tmp_path / "target"
    spark(capsys, "apply", landing, target, "--local", "--to-n", 2)
    with local_disk.locked(target):
        status, _, err = spark(capsys, "apply", landing, target, "--local")
    assert (status, "is being written by another process" in err) == (EX_IOERR, True)
    apply_with, times = apply.apply_with, list[int]()

    def busy_at_first(*given: object, **options: object) -> object:
        times.append(len(times))
        if len(times) == 1:
            with local_disk.locked(target):
                return apply_with(*given, **options)  # type: ignore[arg-type]  # as they came
        os.kill(os.getpid(), signal.SIGTERM)
        return apply_with(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(apply, "apply_with", busy_at_first)
    status, out, err = spark(
        capsys, "apply", landing, target, "--local", "--follow", "--interval", "0.01"
    )
    assert (status, err, len(times)) == (0, "", 2)
    put_off, done = (
        out.index("put off for 0.01 s: target"),
        out.index(f"entry 2 to {history.writer.n - 1} of"),
    )
    assert put_off < done


def test_apply_that_follows_outlives_a_store_that_is_away(tmp_path: Path) -> None:
    """It says so, tries again, and applies all that landed meanwhile; without --follow it ends with 69."""
    scratch, landing = tmp_path / "s3", tmp_path / "landing"
    scratch.mkdir()
    history = History(landing, 6, with_schema_changes=False)
    history.run(2)
    with S3(scratch) as server, (tmp_path / "err").open("w") as err:
        target = server.url(server.bucket(), "tables").replace("timeout=10s", "timeout=1s")
        command = [sys.executable, "-m", "gaussdecode", "spark", "apply", str(landing), target]
        command.append("--local")
        with subprocess.Popen(
            [*command, "--follow", "--interval", "0.2"],
            stdout=subprocess.PIPE, stderr=err, text=True,
        ) as following:  # fmt: skip
            try:
                wait_for(following, f"to {history.writer.n - 1} of")
                server.stop()
                history.run(2)
                deadline = time.monotonic() + 60
                while "put off for" not in (tmp_path / "err").read_text():
                    assert time.monotonic() < deadline
                    assert following.poll() is None, (tmp_path / "err").read_text()
                    time.sleep(0.1)
                ended = subprocess.run(command, capture_output=True, check=False)
                assert ended.returncode == EX_UNAVAILABLE, ended.stderr
                server.start()
                wait_for(following, f"to {history.writer.n - 1} of")
                following.send_signal(signal.SIGTERM)
                assert following.wait(60) == 0
            finally:
                following.kill()


def wait_for(command: "subprocess.Popen[str]", text: str) -> None:
    """Read what a command prints until a line has a text."""
    assert command.stdout is not None
    assert any(text in line for line in iter(command.stdout.readline, ""))


def test_compact_and_vacuum(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both say what they did."""
    landing, target = tmp_path / "landing", tmp_path / "target"
    for n in (2, history.writer.n - 1):
        spark(capsys, "apply", landing, target, "--local", "--history", "--to-n", n)
    status, out, _ = spark(capsys, "compact", target, "--local", "--buckets", 2)
    assert (status, "files became" in out) == (0, True)
    status, out, _ = spark(capsys, "vacuum", target, "--older-than-days", 0)
    assert (status, "removed" in out) == (0, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["apply", "{}/nothing", "{}/target", "--local"], "is no landing"),
        (["vacuum", "{}/nothing"], "is no target"),
        (["compact", "{}/nothing", "--local"], "is no target"),
        (["verify", "s3://a/b", "{}/t", "--dsn", "host=db", "--repair"], "in its own directory"),
        (["comments", "{}/landing", "{}/none", "--dsn", "host=db"], "is no target"),
        (["apply", "{}/landing", "{}/landing", "--local"], "something else"),
        (["apply", "{}/landing", "{}/target", "--local", "--to-n", "99"], "the log holds"),
        (
            ["apply", "{}/landing", "{}/new", "--local", "--to-n", "2@f0"],
            "entry 2 is of landing f0",
        ),
        (["status", "{}/other", "{}/plain"], "was made from another landing"),
    ],
)
def test_mistakes_are_answered(
    words: list[str], text: str, history: History, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A mistake ends with status 78 and one sentence, not with a traceback."""
    Target.create(tmp_path / "plain", Landing(tmp_path / "landing"))
    History(tmp_path / "other", 7)
    status, _, err = spark(capsys, *[word.format(tmp_path) for word in words])
    assert status == EX_CONFIG
    assert text in err
    assert "Traceback" not in err
    assert history.writer.n


@pytest.mark.parametrize(
    ("source", "why"),
    [(_QUIET_GAUSSDB, "snapshot.nudge"), ("{kind: capture, file: /some.cap}", "recording")],
)
def test_verify_refuses_sources_without_views(
    source: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A source whose rows cannot be read at a position is refused in one sentence."""
    config = tmp_path / "slot.yaml"
    config.write_text(f"slot: s\nsource: {source}\nlanding: {{root: {tmp_path}/landing}}\n")
    config.chmod(0o600)
    words = ("verify", tmp_path / "landing", tmp_path / "target", "--config", config, "--local")
    status, _, err = spark(capsys, *words)
    assert (status, why in err) == (EX_CONFIG, True)


def test_importing_the_package_needs_no_spark() -> None:
    """The core and the command line import without pyspark."""
    import subprocess
    import sys

    code = (
        "import sys; import gaussdecode, gaussdecode.cli, gaussdecode.commands.spark; "
        "import gaussdecode.spark.apply, gaussdecode.spark.maintain.upkeep; "
        "assert not any(name.startswith('pyspark') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
