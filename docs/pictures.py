"""Takes the pictures of the pages and of `top`: real daemons, a real server, a real browser.

    make pictures          writes docs/images/page-*.png and fleet*.png, in about three minutes

Three situations, one after the other: nobody works (idle), a daemon catches up while four
sessions work (loaded), and a server that is about to give the slot up while values do not fit (trouble).
"""

import contextlib
import html
import re
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import numpy as np  # noqa: E402 - the kit is found by the line above
from kit.chromium import Chromium  # noqa: E402
from kit.daemon import Daemon, Json, wait_until  # noqa: E402
from kit.postgres import Database, Postgres  # noqa: E402

from gaussdecode.console.screen import Paint, frame  # noqa: E402
from gaussdecode.demo import shop  # noqa: E402
from gaussdecode.operations.fleet import Fleet  # noqa: E402

IMAGES: Final = ROOT / "docs" / "images"
DESKTOP: Final = (1100, 800)
PHONE: Final = (390, 844)
MOST_BYTES: Final = 150_000
MOST_LINES: Final = 1900  # of pixels: a phone's page is long
SESSIONS: Final = 4
TRANSACTIONS: Final = 30
ROWS: Final = 50_000
USUAL_ROOT: Final = "/var/lib/gaussdecode/orders"
RENAME: Final = """
for (const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
     walk.nextNode();) {
  walk.currentNode.nodeValue = walk.currentNode.nodeValue.replaceAll('%s', '%s');
}
"""
"""Puts what lies in a temporary directory where the guide has it."""
SPANS: Final = {
    "1": "<b>", "22": "</b>", "7": "<span style='background:#d7dce2;color:#16191d'>", "27": "</span>",
    "31": "<span style='color:#ff7b72'>", "33": "<span style='color:#e3b341'>",
    "32": "<span style='color:#56d364'>", "36": "<span style='color:#79c0ff'>", "39": "</span>",
}  # fmt: skip
CONFIG: Final[Json] = {
    "decoding": {"parallel-decode-num": 4},
    "landing": {"max-commit-interval": "2s"},
    "guard": {"interval": "1s", "warn-before": "15min", "pause-before": "2min"},
}


def main() -> int:
    """Take all pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, Chromium(Path(name)) as browser:
        directory = Path(name)
        with Postgres(15) as server:
            quiet_and_loaded(Database(server, "orders"), directory / "a", browser)
        limits = {
            "max_slot_wal_keep_size": "160MB", "min_wal_size": "64MB", "max_wal_size": "64MB",
        }  # fmt: skip
        with Postgres(15, limits) as server:
            in_trouble(Database(server, "orders"), directory / "b", browser)
        with Postgres(15) as server:
            side_by_side(server, directory / "c", browser)
    return 0


def quiet_and_loaded(database: Database, directory: Path, browser: Chromium) -> None:
    """A daemon that has nothing to do, then one that has."""
    with daemon_over(database, directory) as daemon:
        work(database, 2.0)
        daemon.catch_up()
        wait_until(lambda: is_calm(daemon), "the daemon is idle")
        time.sleep(25)  # the curves show that it was busy, and is not
        take(browser, daemon, "idle", DESKTOP)
        take(browser, daemon, "idle-phone", PHONE)
        daemon.stop()
        stop, sessions = begin_work(database)
        for _ in range(TRANSACTIONS):
            database.execute(shop.BULK % ROWS)
        daemon.start()
        wait_until(lambda: shows_a_limit(daemon), "it catches up")
        take(browser, daemon, "loaded", DESKTOP)
        take(browser, daemon, "loaded-phone", PHONE, is_dark=True)
        end_work(stop, sessions)


def in_trouble(database: Database, directory: Path, browser: Chromium) -> None:
    """A transaction stays open, so the server keeps WAL, and has little room for it."""
    with daemon_over(database, directory) as daemon, database.connect() as open_one:
        open_one.autocommit = False
        open_one.execute("INSERT INTO shop.audit VALUES (now(), 'nobody', '{}')")
        database.execute(
            "INSERT INTO shop.line SELECT gen_random_uuid(), 1, 'x', 1, 'NaN' "
            "FROM generate_series(1, 3)"
        )
        for _ in range(14):
            work(database, 1.0)
            database.execute("SELECT pg_logical_emit_message(false, 'load', repeat('x', 6000000))")
        wait_until(lambda: "may be lost" in page(daemon), "the guard warns", 30)
        take(browser, daemon, "trouble", DESKTOP)
        take(browser, daemon, "trouble-phone", PHONE)
        open_one.rollback()


def side_by_side(server: Postgres, directory: Path, browser: Chromium) -> None:
    """Four slots: two are well, one has values that do not fit, one daemon is stopped."""
    directory.mkdir()
    names = ("billing", "events", "orders", "stock")
    daemons = {name: daemon_over(Database(server, name), directory / name) for name in names}
    configs = directory / "etc"
    configs.mkdir()
    with contextlib.ExitStack() as running:
        for name, daemon in daemons.items():
            running.enter_context(daemon)
            (configs / f"{name}.yaml").symlink_to(daemon.config_path)
            wait_until(lambda daemon=daemon: is_calm(daemon), "it streams")
        daemons["events"].stop()
        daemons["billing"].database.execute(
            "INSERT INTO shop.line SELECT gen_random_uuid(), 1, 'x', 1, 'NaN' "
            "FROM generate_series(1, 3)"
        )
        stop, sessions = begin_work(daemons["orders"].database)
        wait_until(lambda: "did not fit" in page(daemons["billing"]), "the values have landed")
        time.sleep(8)
        take_top(browser, configs)
        with serving(configs) as url:
            for name, size, is_dark in (("fleet", DESKTOP, False), ("fleet-phone", PHONE, True)):
                browser.open(
                    url, width=size[0], height=size[1], is_dark=is_dark, has_script=False
                )  # fmt: skip
                browser.evaluate(RENAME % (configs, Path("/etc/gaussdecode")))
                keep(browser, name)
        end_work(stop, sessions)


@contextlib.contextmanager
def serving(configs: Path) -> Iterator[str]:
    """Address of the page over these configurations."""
    command = [sys.executable, "-m", "gaussdecode", "top", "--listen", "127.0.0.1:0", str(configs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def take_top(browser: Chromium, configs: Path) -> None:
    """What `gaussdecode top` writes to a terminal, in the colours that terminals usually have."""
    members = Fleet([configs]).look()
    lines = frame(members, 0, 118, 22, "10:42:07", Paint(is_live=True, has_colour=True))
    text = "\n".join(lines).replace(str(configs), "/etc/gaussdecode")
    spans = re.sub(r"\x1b\[(\d+)m", lambda found: SPANS[found[1]], html.escape(text))
    style = (
        "body{margin:0;background:#16191d;color:#d7dce2}"
        "pre{font:15px/1.35 monospace;margin:0;padding:14px;width:max-content}"
    )
    path = configs / "top.html"
    path.write_text(f"<!DOCTYPE html><title>top</title><style>{style}</style><pre>{spans}</pre>")
    browser.open(path.as_uri(), width=1100, height=440)
    keep(browser, "fleet-top")


def daemon_over(database: Database, directory: Path) -> Daemon:
    """A daemon over the demo's shop, not yet started."""
    directory.mkdir()
    database.execute(shop.DDL)
    database.create_slot()
    return Daemon(database, directory, config=CONFIG)


def begin_work(database: Database) -> tuple[threading.Event, list[shop.Shopper]]:
    """Let sessions work until they are stopped."""
    stop = threading.Event()
    sessions = [shop.Shopper(database.dsn, index, stop) for index in range(1, SESSIONS + 1)]
    for session in sessions:
        session.start()
    return stop, sessions


def end_work(stop: threading.Event, sessions: list[shop.Shopper]) -> None:
    """Stop them."""
    stop.set()
    for session in sessions:
        session.join()


def work(database: Database, seconds: float) -> None:
    """One session works for so long."""
    stop = threading.Event()
    session = shop.Shopper(database.dsn, time.monotonic_ns() % 1_000_000, stop)
    session.start()
    time.sleep(seconds)
    end_work(stop, [session])


def page(daemon: Daemon) -> str:
    """The document; empty while nobody answers."""
    try:
        return daemon.get("/")[1].decode()
    except OSError:
        return ""


def rows_landed(daemon: Daemon) -> int:
    """Of measurements, since the daemon's start."""
    found = re.search(r">shop\.measurement</th><td>([\d\u2009]+)</td>", page(daemon))
    return int(found[1].replace("\u2009", "")) if found else 0


def shows_a_limit(daemon: Daemon) -> bool:
    """Whether a stage is named, with figures to look at; at the latest near the end."""
    landed = rows_landed(daemon)
    is_named = landed > 5 * ROWS and "<b>Limit: " in page(daemon)
    return is_named or landed > 0.8 * TRANSACTIONS * ROWS


def is_calm(daemon: Daemon) -> bool:
    """Whether everything has landed."""
    status = daemon.status() or {}
    lag = status.get("lag_bytes")
    return status.get("state") == "streaming" and lag is not None and lag < 1_000_000


def take(
    browser: Chromium, daemon: Daemon, name: str, size: tuple[int, int], *, is_dark: bool = False
) -> None:
    """Take one picture of the whole page; the landing is where the guide puts it."""
    width, height = size
    browser.open(
        f"http://127.0.0.1:{daemon.port}/", width=width, height=height, is_dark=is_dark,
        has_script=False,
    )  # fmt: skip
    browser.evaluate(RENAME % (daemon.root, USUAL_ROOT))
    browser.evaluate(RENAME % (daemon.config_path, "/etc/gaussdecode/orders.yaml"))
    keep(browser, f"page-{name}")


def keep(browser: Chromium, name: str) -> None:
    """Write what the browser shows, as a small file."""
    path = IMAGES / f"{name}.png"
    shrunk = shrink(browser.screenshot(path))
    if len(shrunk) > MOST_BYTES:
        raise SystemExit(f"{path.name} has {len(shrunk)} bytes, more than {MOST_BYTES}")
    path.write_bytes(shrunk)
    print(f"{path.relative_to(ROOT)}: {len(shrunk)} bytes")


# ---- smaller files -------------------------------------------------------------------------


def shrink(picture: bytes) -> bytes:
    """Write a PNG again with a palette of its 256 most frequent colours."""
    pixels = decode(picture)[:MOST_LINES]
    height, width, _ = pixels.shape
    colours = (pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)).ravel()
    values, inverse, counts = np.unique(colours, return_inverse=True, return_counts=True)
    kept = values[np.argsort(-counts)[:256]]
    table = np.stack([(kept >> shift) & 255 for shift in (16, 8, 0)], axis=1).astype(np.int32)
    every = np.stack([(values >> shift) & 255 for shift in (16, 8, 0)], axis=1).astype(np.int32)
    nearest = np.argmin(((every[:, None, :] - table[None, :, :]) ** 2).sum(axis=2), axis=1)
    indexes = nearest[inverse].astype(np.uint8).reshape(height, width)
    rows = np.concatenate([np.zeros((height, 1), np.uint8), indexes], axis=1)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
        + chunk(b"PLTE", table.astype(np.uint8).tobytes())
        + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9))
        + chunk(b"IEND", b"")
    )


def chunk(kind: bytes, data: bytes) -> bytes:
    """One chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def decode(picture: bytes) -> "np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]":
    """Read the pixels of a PNG with 8 bits per channel, as the browser writes it."""
    width, height, depth, kind = struct.unpack(">IIBB", picture[16:26])
    size = {2: 3, 6: 4}[kind]
    if depth != 8:
        raise SystemExit(f"a picture with {depth} bits per channel")
    data, at = b"", 8
    while at < len(picture):
        (length,) = struct.unpack(">I", picture[at : at + 4])
        if picture[at + 4 : at + 8] == b"IDAT":
            data += picture[at + 8 : at + 8 + length]
        at += length + 12
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, width * size + 1)
    pixels = np.zeros((height + 1, width + 1, size), np.int32)
    for y in range(height):
        unfilter(pixels, y + 1, int(lines[y, 0]), lines[y, 1:].reshape(width, size))
    return pixels[1:, 1:, :3].astype(np.uint8)


def unfilter(pixels: "np.ndarray[tuple[int, int, int], np.dtype[np.int32]]", y: int, kind: int,
             line: "np.ndarray[tuple[int, int], np.dtype[np.uint8]]") -> None:  # fmt: skip
    """Undo one line's filter; see the PNG specification, 9.2."""
    row, above = pixels[y], pixels[y - 1]
    if kind == 0:
        row[1:] = line
    elif kind == 2:
        row[1:] = (line + above[1:]) & 255
    else:
        for x in range(1, len(row)):
            left, up, corner = row[x - 1], above[x], above[x - 1]
            if kind == 1:
                guess = left
            elif kind == 3:
                guess = (left + up) // 2
            else:
                far = np.abs(np.stack([up - corner, left - corner, left + up - 2 * corner]))
                guess = np.where(
                    (far[0] <= far[1]) & (far[0] <= far[2]), left,
                    np.where(far[1] <= far[2], up, corner),
                )  # fmt: skip
            row[x] = (line[x - 1] + guess) & 255


if __name__ == "__main__":
    sys.exit(main())
