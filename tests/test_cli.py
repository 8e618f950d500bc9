"""Tests for `gaussdecode.cli` and `gaussdecode.console.completion`."""

import argparse
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import gaussdecode
from gaussdecode import cli, errors
from gaussdecode.cli import _docstring, build_parser, command_names, load_command, main
from gaussdecode.console.completion import completion_script


def run(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Run the program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "gaussdecode", *arguments],
        input=stdin, capture_output=True, text=True, check=False,
    )  # fmt: skip


def complete(words: list[str], directory: Path) -> list[str]:
    """Ask a real bash what it would offer for the last word."""
    script = (
        completion_script(build_parser(), "bash")
        + f"\nCOMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}\n"
        + '_gaussdecode; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-u"], input=script, capture_output=True, text=True, check=True, cwd=directory
    )
    assert done.stderr == ""
    return done.stdout.split()


def fake_execute(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make every command end in an error."""

    def fail(_args: argparse.Namespace) -> int:
        raise error

    parser = argparse.ArgumentParser()
    parser.set_defaults(execute=fail)
    monkeypatch.setattr(cli, "build_parser", lambda _only: parser)


def test_every_command_explains_itself() -> None:
    """Help has a summary and at least one example per command."""
    for name in command_names():
        doc = load_command(name).__doc__ or ""
        assert doc.splitlines()[0].endswith("."), name
        assert f"gaussdecode {name}" in doc, f"{name} shows no example"


def test_help_lists_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """--help ends with 0 and names every command and exit status."""
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in [*command_names(), "completion", "exit status"])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints program and version."""
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"gaussdecode {gaussdecode.__version__}\n"


def test_the_module_is_the_program() -> None:
    """``python -m gaussdecode`` works, and wrong usage ends with 2."""
    assert run("--version").stdout == f"gaussdecode {gaussdecode.__version__}\n"
    assert run("fly").returncode == 2


def test_help_imports_no_command() -> None:
    """It reads what each says of itself, and looks no version up."""
    source = (
        "import sys; from gaussdecode.cli import main\n"
        "try: main(['--help'])\n"
        "finally:\n"
        "    late = {'importlib.metadata', 'numpy', 'yaml', 'psycopg', 'pyarrow'}\n"
        "    sys.exit(sorted(late & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", command_names())
def test_what_is_read_of_a_command_is_its_docstring(name: str) -> None:
    """Without parsing the module; a backslash stands for itself there."""
    text = inspect.getdoc(load_command(name))
    assert text is not None
    shown = _docstring(name)
    assert " ".join(shown.replace("\\\n", " ").split()) == " ".join(text.split())


def test_a_command_imports_only_what_it_needs() -> None:
    """Asking for the status does not load Parquet."""
    code = (
        "import sys; from gaussdecode.cli import main\n"
        "try: main(['status', '--help'])\n"
        "finally: assert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


@pytest.mark.parametrize(
    "error",
    [
        errors.ConfigError("wrong"),
        errors.SourceError("gone", "57P01"),
        errors.WireError("odd tag", 3),
        errors.LandingError("torn"),
        errors.ChildError("died"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_our_errors_are_one_message(
    error: errors.GaussDecodeError,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No traceback, and the exit status of the class."""
    fake_execute(monkeypatch, error)
    assert main([]) == error.exit_status
    assert capsys.readouterr().err == f"gaussdecode: {error}\n"


def test_a_bug_shows_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anything unexpected ends with 70."""
    fake_execute(monkeypatch, ZeroDivisionError("oops"))
    assert main([]) == errors.EX_SOFTWARE
    assert "Traceback" in capsys.readouterr().err


def test_interruption_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C ends as shells expect."""
    fake_execute(monkeypatch, KeyboardInterrupt())
    assert main([]) == 130
    assert capsys.readouterr().err == ""


def test_a_reader_that_leaves_is_no_error() -> None:
    """``gaussdecode ... | head -1`` says nothing on standard error."""
    command = f"{sys.executable} -m gaussdecode completion fish | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_bash_completes_commands(tmp_path: Path) -> None:
    """The first word is a command, and files are not offered."""
    (tmp_path / "status.txt").touch()
    assert complete(["gaussdecode", "stat"], tmp_path) == ["status"]


def test_bash_completes_options_choices_and_files(tmp_path: Path) -> None:
    """After a command come its options, its choices, or file names."""
    (tmp_path / "orders.yaml").touch()
    assert complete(["gaussdecode", "completion", "z"], tmp_path) == ["zsh"]
    assert complete(["gaussdecode", "status", "--j"], tmp_path) == ["--json"]
    assert complete(["gaussdecode", "slot", "cr"], tmp_path) == ["create"]
    assert complete(["gaussdecode", "slot", "create", "ord"], tmp_path) == ["orders.yaml"]
    assert complete(["gaussdecode", "status", "ord"], tmp_path) == ["orders.yaml"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_every_command(shell: str) -> None:
    """Their scripts are written from the same parser."""
    script = completion_script(build_parser(), shell)
    assert all(name in script for name in command_names())
