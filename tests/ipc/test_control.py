"""The words that all processes share."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import gaussdecode
from gaussdecode.errors import GaussDecodeError
from gaussdecode.ipc.control import DECODER_LIMIT, Control, DecoderField, Word, word_of_decoder

ALL_WORDS = [*Word, *(word_of_decoder(i, f) for i in range(DECODER_LIMIT) for f in DecoderField)]


def test_words_are_distinct() -> None:
    """No two names share a word, and each holds 64 bits."""
    control = Control.create()
    for number, word in enumerate(ALL_WORDS):
        control.set(word, 2**64 - 1 - number)
    assert [control.get(word) for word in ALL_WORDS] == [
        2**64 - 1 - number for number in range(len(ALL_WORDS))
    ]


def test_begins_with_zeros() -> None:
    """Nothing is durable, requested or counted at the start."""
    control = Control.create()
    assert set(control.snapshot()) == {word.name.lower() for word in Word}
    assert not any(control.snapshot().values())
    assert not any(control.decoder_snapshot(DECODER_LIMIT - 1).values())


def test_raise_to_never_lowers() -> None:
    """A late, lower position does not take a higher one back."""
    control = Control.create()
    assert control.raise_to(Word.DURABLE_LSN, 7) == 7
    assert control.raise_to(Word.DURABLE_LSN, 5) == 7
    assert control.get(Word.DURABLE_LSN) == 7


def test_add_of_many_threads() -> None:
    """No addition is lost."""
    control = Control.create()

    def count() -> None:
        for _ in range(10_000):
            control.add(Word.BATCHES, 3)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert control.get(Word.BATCHES) == 120_000


@pytest.mark.parametrize("word", [576, 2**31, 2**32 - 1])
def test_no_such_word(word: int) -> None:
    """A number outside the block is refused."""
    control = Control.create()
    for refused in (control.get, lambda word: control.set(word, 1)):
        with pytest.raises(IndexError, match="no control word"):
            refused(word)


@pytest.mark.parametrize("decoder_index", [-1, DECODER_LIMIT])
def test_no_such_decoder(decoder_index: int) -> None:
    """A decoder that cannot exist has no words."""
    with pytest.raises(IndexError):
        word_of_decoder(decoder_index, DecoderField.ROWS)


def test_closed_block() -> None:
    """After close nothing can be read, and closing again is harmless."""
    control = Control.create()
    control.close()
    control.close()
    with pytest.raises(IndexError, match="closed"):
        control.get(0)
    assert control.fd == -1


def test_another_process_sees_it() -> None:
    """A child that inherits the descriptor reads and writes the same words."""
    control = Control.create()
    control.set(Word.DURABLE_LSN, 41)
    script = (
        "import sys; from gaussdecode.ipc.control import *\n"
        "c = Control.attach(int(sys.argv[1])); c.add(Word.DURABLE_LSN, 1); c.close()"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(control.fd)],
        pass_fds=[control.fd],
        env={**os.environ, "PYTHONPATH": str(Path(gaussdecode.__file__).parents[1])},
        check=True,
    )
    assert control.get(Word.DURABLE_LSN) == 42


def test_memory_is_sealed() -> None:
    """Nobody can cut the block under a mapping."""
    control = Control.create()
    with pytest.raises(PermissionError):
        os.ftruncate(control.fd, 0)


def test_attach_to_something_else() -> None:
    """A descriptor that is no control block is refused."""
    plain = os.memfd_create("plain", os.MFD_ALLOW_SEALING)
    os.truncate(plain, 4096)
    with pytest.raises(GaussDecodeError, match="not a control block"):
        Control.attach(plain)
    os.close(plain)
