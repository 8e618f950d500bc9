"""The unit on a real systemd, as a machine has it: installed, run, killed, rebooted, asked.

One machine and one server for all of it; each test has a slot of its own.
"""

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import oracle
from kit.daemon import wait_until
from kit.installed import PASSWORD, ROLE, Installed
from kit.machine import Machine, below, groups_of, is_removed
from kit.postgres import Database, Postgres
from kit.runbook import Root, lines_of, typed_in_runbooks
from kit.workload import prepare

from gaussdecode.model.lsn import Lsn

pytestmark = [pytest.mark.integration, pytest.mark.machine]
Install = Callable[..., Installed]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine on which root has installed the units as the guide says."""
    with Machine(tmp_path_factory.mktemp("live") / "machine") as machine:
        machine.do("gaussdecode install-units")
        machine.do("systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload")
        machine.do("useradd --create-home passerby; useradd --groups gaussdecode reader")
        yield machine


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server that wants the role's password."""
    with Postgres(15, {"wal_sender_timeout": "10s"}) as server:
        server.use_password(ROLE, PASSWORD)
        yield server


@pytest.fixture
def install(machine: Machine, server: Postgres) -> Iterator[Install]:
    """Make slots, each of a database of its own, which is dropped after the test."""
    made: list[Installed] = []

    def make(**options: object) -> Installed:
        database = Database(server, f"live_{next(_numbers)}")
        made.append(Installed(machine, database, **options))  # type: ignore[arg-type]  # as given
        return made[-1]

    yield make
    for daemon in made:
        machine.run(f"systemctl disable --now {daemon.unit}; systemctl reset-failed {daemon.unit}")
        daemon.database.drop()
        print(daemon.log_tail(40))


def test_killed_tests_leave_no_machine(tmp_path: Path) -> None:
    """The kernel ends every process of it with the one that booted it."""
    code = "import pathlib, sys; from kit.machine import Machine; root = pathlib.Path(sys.argv[1])"
    code += "\nwith Machine(root, is_bare=True) as it: print(it.name, flush=True); sys.stdin.read()"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "machine")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    ) as tests:  # fmt: skip
        assert tests.stdout is not None
        name = tests.stdout.readline().strip()
        (group,) = groups_of(name)
        assert "populated 1" in (group / "cgroup.events").read_text()
        tests.kill()
    wait_until(lambda: "populated 0" in (group / "cgroup.events").read_text(), "it ends")
    assert all(is_removed(each) for each in below(group))


def test_installed_daemon_lands(install: Install) -> None:
    """The password is a credential of root's, everything that lands is the account's."""
    daemon = install()
    workload = prepare(daemon.database, 50)
    daemon.start()
    assert daemon.show("Type") == "notify"
    assert daemon.show("User") == "gaussdecode"
    daemon.wait_for_state("streaming")
    workload.run(20)
    daemon.catch_up()
    scraped = daemon.get("/metrics")[1].decode()
    for name in ("process_cpu_seconds_total", "process_start_time_seconds", "process_open_fds"):
        assert f"\n{name} " in scraped, "ProcSubset=pid hides the boot time"
    assert daemon.stop() == 0
    oracle.check(daemon.root, daemon.database)
    assert len(daemon.owners()) == 1
    assert PASSWORD not in daemon.journal()


def test_page_over_all_slots(install: Install) -> None:
    """Its unit reads root's configurations as a user of its own, and sees who is up and who is not."""
    daemon = install()
    machine = daemon.machine
    prepare(daemon.database, 60)
    daemon.start()
    daemon.wait_for_state("streaming")
    machine.do("systemctl start gaussdecode-fleet")

    def seen() -> dict[str, Any]:  # Any: JSON
        told = machine.run("curl -sf http://127.0.0.1:19186/status").out
        slots = {slot["name"]: slot for slot in json.loads(told or '{"slots": []}')["slots"]}
        found: dict[str, Any] = slots.get(daemon.unit.partition("@")[2], {})
        return found

    try:
        wait_until(lambda: seen().get("state") == "streaming", "the page shows it")
        assert daemon.stop() == 0
        wait_until(lambda: seen().get("is_well") is False, "the page says that it is stopped")
        assert "connection refused" in seen()["causes"][0]["what"]
        user = machine.do("systemctl show --value -p MainPID gaussdecode-fleet").strip()
        assert machine.do(f"stat -c %u /proc/{user}").strip() != "0"
        log = machine.do("journalctl -b -u gaussdecode-fleet")
        assert "Traceback" not in log
    finally:
        machine.run("systemctl stop gaussdecode-fleet")


def test_ends_under_load(install: Install) -> None:
    """Stopped, killed, silent: nothing is lost and nothing comes twice."""
    daemon = install()
    workload = prepare(daemon.database, 51)
    machine = daemon.machine
    drop_in = f"/run/systemd/system/{daemon.unit}.service.d"
    machine.do(f"mkdir -p {drop_in}")
    machine.write(f"{drop_in}/hurry.conf", "[Service]\nWatchdogSec=3s\nRestartSec=100ms\n")
    machine.do("systemctl daemon-reload")
    daemon.start()
    daemon.wait_for_state("streaming")
    workload.run(20)
    machine.do(f"systemctl restart {daemon.unit}")
    for number, signal in enumerate(("KILL", "STOP"), start=1):
        workload.run(20)
        machine.do(f"systemctl kill --kill-whom=main --signal={signal} {daemon.unit}")
        workload.run(10)
        wait_until(lambda number=number: int(daemon.show("NRestarts")) == number, "it is started")  # type: ignore[misc]
        daemon.wait_for_state("streaming")
    assert "Watchdog timeout" in daemon.machine.do(f"journalctl -b -u {daemon.unit}")
    workload.run(10)
    daemon.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, daemon.database)


def test_enabled_slot_starts_with_the_machine(install: Install) -> None:
    """One command enables it for good; all slots are stopped and started together."""
    daemon = install()
    workload = prepare(daemon.database, 52)
    daemon.begin()
    daemon.machine.do(f"systemctl enable --now {daemon.unit}")
    daemon.wait_for_state("streaming")
    workload.run(10)
    daemon.machine.reboot()
    workload.run(10)
    daemon.wait_for_state("streaming")
    daemon.machine.do("systemctl stop gaussdecode.target")
    assert daemon.wait() == 0
    daemon.machine.do("systemctl start gaussdecode.target")
    daemon.wait_for_state("streaming")
    daemon.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, daemon.database)


def test_commands_of_root_are_the_owners(install: Install) -> None:
    """Whatever root asks for, nothing of root's is left in the landing, and the daemon goes on."""
    daemon = install()
    database, root = daemon.database, daemon.place
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    database.execute("INSERT INTO public.t VALUES (1)")
    database.execute(f"GRANT SELECT ON public.t TO {ROLE}")
    before = daemon.machine.run(f"gaussdecode check {daemon.config_path}")
    assert (
        f"{root}: will be created by `slot create`, owned by gaussdecode:gaussdecode" in before.out
    )
    daemon.command("slot create")
    daemon.machine.do(f"gaussdecode snapshot --no-wait --table public.t {daemon.config_path}")
    daemon.start()
    daemon.wait_for_state("streaming")
    assert "1 row in entry" in daemon.command("snapshot --table public.t")
    database.execute("INSERT INTO public.t VALUES (2)")
    daemon.catch_up()
    assert "landed up to" in daemon.command("check")
    for line in (f"verify {root}", f"gaps {root}", f"status {daemon.config_path}"):
        daemon.machine.do(f"gaussdecode {line}")
    assert daemon.stop() == 0
    database.execute(f"SELECT pg_drop_replication_slot('{database.slot}')")
    refused = daemon.machine.run(f"gaussdecode slot accept-gap {daemon.config_path}")
    (begin,) = re.findall(r"--from-lsn (\S+)", refused.err)
    daemon.command("slot accept-gap", "--from-lsn", begin)
    log = f"/root/{database.name}.log"
    started = f"gaussdecode run {daemon.config_path} </dev/null >{log} 2>&1 & echo $!"
    pid = daemon.machine.do(started).strip()
    wait_until(lambda: (daemon.status() or {}).get("state") == "streaming", "it streams by hand")
    daemon.machine.do(f"kill {pid}")
    wait_until(lambda: daemon.machine.run(f"kill -0 {pid}").status != 0, "it has ended")
    assert '"user": "gaussdecode"' in daemon.machine.do(f"cat {log}")
    daemon.start()
    daemon.wait_for_state("streaming")
    assert daemon.stop() == 0
    assert daemon.show("NRestarts") == "0"
    assert {pwd_name(daemon, uid) for uid in daemon.owners()} == {"gaussdecode"}


def pwd_name(daemon: Installed, uid: int) -> str:
    """Name of a user of the machine's."""
    return daemon.machine.do(f"id --name --user {uid}").strip()


def test_who_may_not_is_told_who_may(install: Install) -> None:
    """The account cannot read the password, others not the configuration; none sees it empty."""
    daemon = install()
    daemon.begin()
    config, root = daemon.config_path, daemon.place

    def refuses(line: str, user: str, *words: str) -> None:
        done = daemon.machine.run(f"gaussdecode {line}", user=user)
        assert done.status == os.EX_CONFIG, done
        assert f"for user {user}" in done.text
        assert f"sudo gaussdecode {line}" in done.text
        assert "empty" not in done.text
        assert not [word for word in words if word not in done.text], done.text

    password = "belongs to root:root, mode 0600"
    refuses(f"slot list {config}", "gaussdecode", str(config.with_suffix(".password")), password)
    refuses(f"check {config}", "gaussdecode", password)
    for words in ("check", "status", "snapshot --all", "slot accept-gap", "run"):
        refuses(f"{words} {config}", "passerby", "/etc/gaussdecode belongs to root:gaussdecode")
    for words in ("verify", "gaps"):
        refuses(f"{words} {root}", "passerby", "/var/lib/gaussdecode belongs to gaussdecode:")
    for words in ("verify", "gaps"):
        daemon.machine.do(f"gaussdecode {words} {root}", user="gaussdecode")
        daemon.machine.do(f"gaussdecode {words} {root}", user="reader")


def test_check_calls_nothing_empty_that_it_cannot_read(install: Install) -> None:
    """With the configuration at hand, and the landing out of reach."""
    daemon = install()
    daemon.begin()
    machine = daemon.machine
    for suffix, mode in ((".yaml", "0600"), (".password", "0600")):
        path = daemon.config_path.with_suffix(suffix)
        machine.do(f"install -m {mode} -o passerby {path} ~passerby/{path.name}")
    own = f"/home/passerby/{daemon.config_path.name}"
    machine.do(f"sed -i s:/etc/gaussdecode:/home/passerby: {own}")
    done = machine.run(f"gaussdecode check {own}", user="passerby")
    assert done.status == os.EX_CONFIG
    assert f"{daemon.place}: cannot be read" in done.out
    assert "/var/lib/gaussdecode belongs to gaussdecode:gaussdecode, mode 0750" in done.text
    assert f"sudo gaussdecode check {own}" in done.text


def test_files_that_the_daemon_may_not_read_keep_it_down(install: Install) -> None:
    """An entry, a credential: it says which file, whose it is, and stays down until it is let."""
    daemon = install()
    daemon.begin()
    machine = daemon.machine
    entry = max(path for path in (daemon.root / "commits").glob("0*.json")).name
    machine.do(f"chown root:root {daemon.place}/commits/{entry}")
    machine.run(f"systemctl start {daemon.unit}")
    assert daemon.wait() == os.EX_CONFIG
    assert f"{daemon.place}/commits/{entry} belongs to root:root, mode 0640" in daemon.journal()
    machine.do(f"chown gaussdecode: {daemon.place}/commits/{entry}")
    secret = f"/etc/gaussdecode/{daemon.database.name}.secret"
    machine.do(f"mkdir -m 0700 {secret}")
    drop_in = f"/run/systemd/system/{daemon.unit}.service.d"
    machine.do(f"mkdir -p {drop_in}")
    text = f"[Service]\nLoadCredential=\nEnvironment=CREDENTIALS_DIRECTORY={secret}\n"
    machine.write(f"{drop_in}/secret.conf", text)
    machine.do("systemctl daemon-reload")
    machine.run(f"systemctl start {daemon.unit}")
    assert daemon.wait() == os.EX_CONFIG
    assert daemon.show("NRestarts") == "0"
    assert f"{secret} belongs to root:root, mode 0700" in daemon.journal()
    assert "this is a bug" not in daemon.journal()


def test_request_that_cannot_be_read_is_a_finding(install: Install) -> None:
    """A file of root's below the landing is named, and all else goes on, also over a restart."""
    daemon = install()
    daemon.database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY)")
    daemon.database.execute(f"GRANT SELECT ON public.t TO {ROLE}")
    daemon.begin()
    daemon.start()
    daemon.wait_for_state("streaming")
    path = f"{daemon.place}/snapshots/requests/{7:016x}.json"
    daemon.machine.write(path, '{"table":"public.t","where":null}', mode="0600")
    fault = (
        f"{path}: Permission denied for user gaussdecode: {path} belongs to root:root, mode 0600"
    )

    def is_told() -> bool:
        troubles = (daemon.status() or {}).get("troubles", ())
        return any(fault in trouble["what"] for trouble in troubles)

    wait_until(is_told, "it is told")
    assert fault in daemon.command("check")
    assert "0 rows in entry" in daemon.command("snapshot --table public.t")
    daemon.machine.do(f"systemctl restart {daemon.unit}")
    daemon.wait_for_state("streaming")
    wait_until(is_told, "it is told again")
    assert daemon.show("NRestarts") == "0"
    daemon.machine.do(f"rm {path}")
    wait_until(lambda: not is_told(), "it is forgotten")
    assert daemon.stop() == 0


@pytest.fixture
def walked(install: Install) -> Installed:
    """A slot of two tables, one of them forgotten in the publication; it streams."""
    daemon = install()
    database = daemon.database
    name = database.publication
    database.execute("CREATE TABLE public.t (id int4 PRIMARY KEY, name text)")
    database.execute("CREATE TABLE public.other (id int4 PRIMARY KEY)")
    database.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {ROLE}")
    database.execute(f"DROP PUBLICATION {name}; CREATE PUBLICATION {name} FOR TABLE public.other")
    daemon.begin()
    daemon.machine.do(f"systemctl enable --now {daemon.unit}")
    daemon.wait_for_state("streaming")
    database.execute(
        "INSERT INTO public.t VALUES (1, 'missed'); INSERT INTO public.other VALUES (1)"
    )
    daemon.catch_up()
    return daemon


def test_procedures_by_root(walked: Installed) -> None:
    """All that concern one machine, one after the other on a live unit; then nothing is missing."""
    daemon, database, root = walked, walked.database, Root(walked)
    root.words.update({"SCHEMA.NAME": "public.t", "orders": database.publication})

    def walk(heading: str, first: int = 0) -> str:
        said = [root.carry_out(line) for line in lines_of(heading)[first:]]
        daemon.wait_for_state("streaming")
        return said[0] if said else ""

    walk("Lag grows")
    walk("A table stopped")
    walk("The disk is full")
    assert daemon.stop() == 0
    database.execute(f"SELECT pg_drop_replication_slot('{database.slot}')")
    database.execute("UPDATE public.t SET name = 'unseen'; INSERT INTO public.other VALUES (2)")
    daemon.machine.run(f"systemctl start {daemon.unit}")
    assert daemon.wait() == os.EX_CONFIG
    listed = root.carry_out(f"{lines_of('The slot is lost')[0]} --json")
    root.words["FROM"] = json.loads(listed.splitlines()[-1])["from_lsn"]
    walk("The slot is lost")
    daemon.command("snapshot --table public.other")
    daemon.catch_up()
    assert daemon.stop() == 0
    root.words["FROM"] = str(Lsn(daemon.durable_lsn()))
    database.execute("CREATE TABLE IF NOT EXISTS public.skipped (); DROP TABLE public.skipped")
    walk("A publication was dropped or changed")
    walk("Failover")
    walk("Upgrade", first=1)  # but for the network's part
    _away(daemon)
    root.words["OLD"] = "old"
    walk("Move to another host", first=1)
    database.execute("INSERT INTO public.t VALUES (3, 'seen'); INSERT INTO public.other VALUES (3)")
    daemon.catch_up()
    assert daemon.stop() == 0
    oracle.check(daemon.root, database)
    assert {pwd_name(daemon, uid) for uid in daemon.owners()} == {"gaussdecode"}


def _away(daemon: Installed) -> None:
    """From here on this is a new host, and what was here is the old one's, which ssh reaches."""
    machine, place, name = daemon.machine, daemon.place, daemon.database.name
    machine.do(f"systemctl disable --now {daemon.unit}")
    machine.do(f"mkdir -p /srv/old; mv {place} /srv/old/landing")
    machine.do(f"mkdir /srv/old/etc; mv /etc/gaussdecode/{name}.* /srv/old/etc")
    show = f"mount --bind /srv/old/landing {place}; mount --bind /srv/old/etc /etc/gaussdecode"
    text = f'#!/bin/sh\nshift\nexec unshare --mount sh -c \'{show}; exec "$@"\' sh "$@"\n'
    machine.write("/usr/local/bin/ssh", text, mode="0755")


def test_runbooks_by_root(walked: Installed) -> None:
    """Every command that a runbook names does its work on a live unit; the daemon goes on."""
    root = Root(walked, TABLE="public.other")
    typed = typed_in_runbooks()
    assert len(typed) > 5
    for line in typed:
        if line == "gaussdecode slot create CONFIG":  # of a new landing
            continue
        if "grep session_retrying" in line:
            walked.database.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
            )
            wait_until(lambda: "session_retrying" in walked.journal(), "the stream breaks off")
        root.carry_out(line)
    walked.wait_for_state("streaming")
    walked.catch_up()
    assert walked.show("NRestarts") == "0"
    assert {pwd_name(walked, uid) for uid in walked.owners()} == {"gaussdecode"}
