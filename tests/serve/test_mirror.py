"""A mirror is served: rows from a store, virtual slots in a directory, and new entries as they are shipped."""

import asyncio
import concurrent.futures
import threading
from pathlib import Path

import pytest
from kit.served import Replication, Served, unpack_landing

from gaussdecode import logs
from gaussdecode.cli import main
from gaussdecode.daemon.serving import Task
from gaussdecode.errors import EX_CONFIG, ConfigError, MirrorError
from gaussdecode.serve import feed
from gaussdecode.serve.feed import LogEnd
from gaussdecode.settings.landing_sections import MirrorConfig
from gaussdecode.settings.load import load
from gaussdecode.spark.log.landing import Landing
from gaussdecode.spark.log.place import ObjectPath


def _place(mirror: Path) -> ObjectPath:
    """A directory as a store."""
    return ObjectPath(MirrorConfig(url=f"file://{mirror}"))


def _files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_clients_of_a_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They get what clients of the landing get, entries that come later included; nothing is written there."""
    monkeypatch.setattr(feed, "_STORE_POLL_SECONDS", 0.05)
    root = unpack_landing(tmp_path)
    mirror, slots = tmp_path / "mirror", tmp_path / "slots"
    landing, before = Landing(root), _files(mirror)
    end = landing.position(landing.entry(landing.last_n)).lsn
    with Served(root) as served:
        served.add_slot("copy")
        client = Replication(served, "copy")
        own = client.until(end)
        client.close()
    late = {path: path.read_bytes() for path in sorted((mirror / "commits").glob("*.json"))[-4:]}
    for path in late:
        path.unlink()
    with Served(_place(mirror), slots_root=slots) as served:
        served.add_slot("copy")
        first = served.end_lsn()
        client = Replication(served, "copy")
        found = client.until(first)
        assert 0 < first < end
        assert 0 < len(found) < len(own)
        for path, content in late.items():
            path.write_bytes(content)
        found += client.until(end)
        assert found == own
        client.confirm(end)
        client.next()
        client.close()
        with served.connect() as session:
            session.execute("SELECT pg_create_logical_replication_slot('other', 'test_decoding')")
    assert _files(mirror) == before
    with Served(_place(mirror), slots_root=slots) as served:
        kept = {slot.name: slot.lsn for slot in served.server.slots}
    assert kept == {"copy": end, "other": end}


class _Store:
    """A log in a store that can be away."""

    newest, is_away = 3, False

    def __truediv__(self, name: str) -> "_Entry":
        return _Entry(self, name)


class _Entry:
    def __init__(self, store: _Store, name: str) -> None:
        self._store, self._name = store, name

    def __truediv__(self, name: str) -> "_Entry":
        return _Entry(self._store, name)

    def exists(self) -> bool:
        """Whether it is shown."""
        assert threading.current_thread().name != "MainThread"
        if self._store.is_away:
            raise MirrorError("no answer in time")
        return int(self._name.partition(".")[0]) <= self._store.newest


def test_a_store_that_is_away_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What was seen stays the end meanwhile, which is logged once; the event loop asks nobody itself."""
    monkeypatch.setattr(feed, "_STORE_POLL_SECONDS", 0.0)
    logs.configure("info", slot="orders")
    store = _Store()

    async def look() -> list[int]:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            end = LogEnd(store, lambda: 3, pool)  # type: ignore[arg-type]  # as far as it is used
            store.newest, store.is_away = 5, True
            seen = [await end.see(), await end.see(), end.look()]
            store.is_away = False
            return [*seen, end.look(), await end.see()]

    assert asyncio.run(look()) == [3, 3, 3, 3, 5]
    assert capfd.readouterr().err.count("no answer in time; it is asked again") == 1


def test_a_client_that_waits_is_told_of_what_another_saw(tmp_path: Path) -> None:
    """The other one looked first, so that the end had moved when the next look came."""
    commits = tmp_path / "commits"
    commits.mkdir()

    async def wait() -> bool:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            end = LogEnd(tmp_path, lambda: -1, pool)
            waiting = asyncio.create_task(end.wait(0, 60.0))
            await asyncio.sleep(0.01)
            (commits / f"{0:020d}.json").touch()
            assert end.look() == 0
            return await asyncio.wait_for(waiting, 30.0)

    assert asyncio.run(wait())


def test_what_is_to_be_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A URL needs a directory for slots; a configuration has one, and names the mirror."""
    assert main(["serve", "s3://bucket/orders?region=x"]) == EX_CONFIG
    assert "s3://bucket/orders: a mirror is only read; name a directory" in capsys.readouterr().err
    assert main(["serve", str(tmp_path), "--mirror"]) == EX_CONFIG
    assert "--mirror: the URL of the mirror stands in a configuration" in capsys.readouterr().err
    path = tmp_path / "orders.yaml"
    text = (
        "slot: orders\nsource:\n  kind: postgresql\n  dsn: host=/tmp dbname=x user=me\n  publication: [p]\n"
        f"landing:\n  root: {tmp_path}/landing\n"
    )
    path.write_text(text)
    path.chmod(0o600)
    config = load(path)
    assert (Task.of(config).root, Task.of(config).slots_root) == (config.landing.root, None)
    with pytest.raises(ConfigError, match="there is no mirror to serve"):
        Task.of(config, from_mirror=True)
    path.write_text(f"{text}  mirror:\n    url: s3://bucket/orders\n")
    config = load(path)
    assert Task.of(config).root == config.landing.root
    task = Task.of(config, from_mirror=True)
    assert (task.root, task.slots_root) == (ObjectPath(config.mirror), config.landing.root)
    assert Task.unpacked(task.packed()) == task
    path.write_text(f"{text}  mirror:\n    url: s3://bucket/orders\n    local-retention: 1d\n")
    assert Task.of(load(path)).root == ObjectPath(load(path).mirror)
