"""Tests for `gaussdecode.daemon.status.states`: the table, and all who say what it says."""

import dataclasses
import math
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kit.install import find_tool
from kit.rules import RULES, installed

from gaussdecode.daemon.status import expiry, states
from gaussdecode.daemon.status.changes import Changes
from gaussdecode.daemon.status.history import Sample
from gaussdecode.daemon.status.limit import Limit, Stage
from gaussdecode.daemon.status.seen import WATCHED, Seen
from gaussdecode.daemon.status.states import STATES, find_troubles
from gaussdecode.daemon.status.stopped import Stopped
from gaussdecode.daemon.status.text import size, span
from gaussdecode.daemon.status.trouble import (
    Severity,
    State,
    Trouble,
    find_causes,
    readiness,
)
from gaussdecode.metrics.table import BY_NAME

Values = dict[str, dict[tuple[str, ...], float]]
DOCS: Final = Path(__file__).parents[3] / "docs"
BY_STATE: Final = {state.name: state for state in STATES}
FROM_OUTSIDE: Final = {"down", "restarting", "client-behind"}
WELL: Final = Seen(
    values={"gaussdecode_source_connected": {(): 1.0}},
    ages={},
    state="streaming",
    reason=None,
    guard_reason=None,
    spool_reason=None,
    faults=(),
    stopped=(),
    limit=Limit(Stage.ENCODE, "The lanes encode all the time.", "landing.writer-lanes"),
    rates=None,
    retained_rate=0.0,
    decoder_count=2,
    usual_lag_seconds=70.0,
    warn_before=7200.0,
    config=Path("/etc/gaussdecode/orders.yaml"),
    root=Path("/landing"),
    now=110 * 60.0,  # as promtool's clock at last
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A state, as the daemon sees it and as Prometheus has scraped it.

    Attributes:
        state: name of the row.
        series: by metric, values by the minute in promtool's notation.
        seen: what the daemon sees besides the newest of these.
        newest: values; those of `series` that do not end in a plain number.
    """

    state: str
    series: Mapping[str, str]
    seen: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # Any: fields of Seen
    newest: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def look(self) -> Seen:
        """What the daemon sees."""
        ends = {name: text.split()[-1].split("x")[0] for name, text in self.series.items()}
        plain = {name: float(text) for name, text in ends.items() if name not in self.newest}
        values = {
            name: {("x",) * len(BY_NAME[name].labels): value}
            for name, value in {**plain, **self.newest}.items()
        }
        return dataclasses.replace(WELL, values={**WELL.values, **values}, **self.seen)


def g(name: str) -> str:
    """A metric's whole name."""
    return f"gaussdecode_{name}"


CONNECTED: Final = {g("source_connected"): "1x120"}
AWAY: Final = {g("source_connected"): "0x120"}
BAD: Final = (
    Case("slot-lost", {g("source_slot_lost"): "1x120"}),
    Case("gap", {g("land_gap_entries_total"): "0x60 1x60"}, {"ages": {"land_gap_entries_total": 60.0}}),
    Case("slot-near-its-end", {g("source_invalidation_seconds"): "7199x120"}),
    Case("disk-full", {g("land_disk_full"): "1x120"}),
    Case("spool-full", {g("collect_spool_full"): "1x120"}),
    Case("mirror-away", {g("land_mirror_up"): "0x120"}),
    Case("not-streaming", AWAY, {"state": "retrying", "reason": "the server is away"}),
    Case("not-streaming", AWAY, {"state": "refused", "reason": "the slot is lost"}),
    Case(
        "process-stopped",
        {**CONNECTED, g("source_lag_bytes"): "9x120", g("land_durable_lsn"): "7x120"},
        {"stopped": (Stopped("decoder 1", 77, "T", 3.0),)},
    ),
    Case(
        "no-progress",
        {**CONNECTED, g("source_lag_bytes"): "9x120", g("land_durable_lsn"): "7x120"},
        {"ages": {"land_durable_lsn": 601.0}},
    ),
    Case("quarantined", {g("land_quarantined_tables"): "1x120"}),
    Case("snapshot-failed", {g("land_snapshot_failed_tables"): "2x120"}),
    Case(
        "snapshot-request",
        {g("land_snapshot_unreadable_requests"): "1x120"},
        {"faults": ("x.json belongs to root",)},
    ),
    Case(
        "suspect",
        {g("land_suspect_entries_total"): "0x60 1x60"},
        {"ages": {"land_suspect_entries_total": 60.0}},
    ),
    Case("virtual-slot-lost", {g("land_lost_virtual_slots"): "2x120"}),
    Case("serve-away", {g("daemon_serve_up"): "0x120"}, {"serve_reason": "serve.listen: in use"}),
    Case(
        "virtual-slot-near-its-end",
        {g("land_virtual_slot_held_bytes"): "801x120", g("land_virtual_slot_limit_bytes"): "1000x120"},
    ),
    Case("certificate-ends", {g("daemon_certificate_end_time_seconds"): "1210000x120"}),
    Case("certificate-ends", {g("daemon_certificate_end_time_seconds"): "6000x120"}),
    Case("certificate-ends", {g("daemon_certificate_end_time_seconds"): "NaN " * 121}),
    Case("paused", {g("daemon_paused"): "1x120"}, {"pause": "paused by root since noon"}),
    Case(
        "turns-held",
        {g("collect_turn_held_seconds"): "301x120"},
    ),
    Case(
        "prepared-long",
        {g("collect_prepared_transactions"): "1x120", g("collect_prepared_seconds"): "3601x120"},
    ),
    Case(
        "not-streamed",
        {g("source_streaming_fallbacks_total"): "0x60 1x60"},
        {"ages": {"source_streaming_fallbacks_total": 60.0}},
    ),
    Case(
        "disk-filling",
        {
            g("land_full_seconds"): "7000x120",
            g("land_free_bytes"): "100000-500x120",
            g("land_min_free_bytes"): "1000x120",
        },
        newest={g("land_free_bytes"): 40000.0},
    ),
    Case(
        "guard-blind",
        {**CONNECTED, g("daemon_guard_failures_total"): "0+2x120"},
        {"guard_reason": "too many connections"},
        {g("daemon_guard_failures_total"): 240.0},
    ),
    Case("lagging", {g("source_lag_seconds"): "601x120"}),
    Case("lagging-bytes", {g("source_lag_bytes"): "11e9x120"}),
    Case(
        "wal-retained",
        {g("source_retained_wal_bytes"): "4.1e9+1e6x120"},
        {"retained_rate": 16e3},
        {g("source_retained_wal_bytes"): 4.2e9},
    ),
    Case("wraparound", {g("source_catalog_xmin_age_transactions"): "501e6x120"}),
    Case("wraparound", {g("source_frozen_age_transactions"): "1.1e9x120"}),
    Case(
        "queues-full",
        {g("source_stalled_seconds_total"): "0+55x120"},
        {"rates": Sample(900.0, source_stalled_seconds_total=0.9)},
        {g("source_stalled_seconds_total"): 6600.0},
    ),
    Case(
        "misfits",
        {g("decode_misfit_values_total"): "0x60 3x60"},
        {"ages": {"decode_misfit_values_total": 60.0}},
    ),
    Case(
        "misfits",
        {g("collect_unread_ddl_total"): "0x60 3x60"},
        {"ages": {"collect_unread_ddl_total": 60.0}},
    ),
    Case(
        "reconnecting",
        {g("daemon_restarts_total"): "0x90 8x30"},
        {"ages": {"daemon_restarts_total": 60.0}},
    ),
    Case("not-yet-streaming", AWAY, {"state": "starting"}),
    Case("not-yet-streaming", AWAY, {"state": "connecting"}),
    Case("not-yet-streaming", AWAY, {"state": "stopping"}),
)  # fmt: skip
GOOD: Final = (
    Case("slot-lost", {g("source_slot_lost"): "0x120"}),
    Case("gap", {g("land_gap_entries_total"): "1x120"}, {"ages": {"land_gap_entries_total": 3601.0}}),
    Case("slot-near-its-end", {g("source_invalidation_seconds"): "7201x120"}),
    Case("disk-full", {g("land_disk_full"): "0x120"}),
    Case("spool-full", {g("collect_spool_full"): "0x120"}),
    Case("mirror-away", {g("land_mirror_up"): "1x120"}),
    Case("no-progress", {**CONNECTED, g("source_lag_bytes"): "0x120", g("land_durable_lsn"): "7x120"},
         {"ages": {"land_durable_lsn": 601.0}}),
    Case("quarantined", {g("land_quarantined_tables"): "0x120"}),
    Case("snapshot-failed", {g("land_snapshot_failed_tables"): "0x120"}),
    Case("prepared-long", {g("collect_prepared_seconds"): "3599x120"}),
    Case("paused", {g("daemon_paused"): "0x120"}),
    Case("virtual-slot-lost", {g("land_lost_virtual_slots"): "0x120"}),
    Case("serve-away", {g("daemon_serve_up"): "1x120"}),
    Case("virtual-slot-near-its-end", {g("land_virtual_slot_held_bytes"): "800x120", g("land_virtual_slot_limit_bytes"): "1000x120"}),
    Case("virtual-slot-near-its-end", {g("land_virtual_slot_held_bytes"): "9e12x120"}),
    Case("certificate-ends", {g("daemon_certificate_end_time_seconds"): "1216201x120"}),
    Case("turns-held", {g("collect_turn_held_seconds"): "300x120"}),
    Case("not-streamed", {g("source_streaming_fallbacks_total"): "1x120"},
         {"ages": {"source_streaming_fallbacks_total": 3601.0}}),
    Case("suspect", {g("land_suspect_entries_total"): "0x60 1x60", g("land_unread_suspect_entries"): "0x120"},
         {"ages": {"land_suspect_entries_total": 60.0}}),
    Case("suspect", {g("land_suspect_entries_total"): "1x120"},
         {"ages": {"land_suspect_entries_total": 3601.0}}),
    Case("disk-filling", {g("land_free_bytes"): "100000x120", g("land_min_free_bytes"): "1000x120"}),
    Case("lagging", {g("source_lag_seconds"): "60x120"}),
    Case("lagging-bytes", {g("source_lag_bytes"): "9e9x120"}),
    Case("wal-retained", {g("source_retained_wal_bytes"): "9e9x120"}),
    Case("wraparound", {g("source_catalog_xmin_age_transactions"): "499e6x120"}),
    Case("queues-full", {g("source_stalled_seconds_total"): "0+5x120"},
         {"rates": Sample(900.0, source_stalled_seconds_total=0.1)}, {g("source_stalled_seconds_total"): 600.0}),
    Case("misfits", {g("decode_misfit_values_total"): "3x120"},
         {"ages": {"decode_misfit_values_total": 3601.0}}),
    Case("reconnecting", {g("daemon_restarts_total"): "8x120"},
         {"ages": {"daemon_restarts_total": 1801.0}}),
)  # fmt: skip
RULE: Final = {rule["alert"]: rule for rule in installed()}


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.state)
def test_each_state_is_told_alone(case: Case) -> None:
    """With what to do, in sentences; and the probe, the command and its exit status follow the row."""
    (trouble,) = find_troubles(case.look())
    assert trouble.state is BY_STATE[case.state]
    assert trouble.what.rstrip("`")[-1] in ".s"
    assert trouble.action.endswith(".")
    is_ready, text = readiness([trouble])
    assert is_ready is not trouble.state.is_unready
    assert (trouble.what in text) or trouble.state.severity is Severity.NOTE
    assert trouble.to_record()["alert"] == trouble.state.alert


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.state)
def test_no_state_is_told_beside_its_bound(case: Case) -> None:
    """Nor when it is over."""
    assert find_troubles(case.look()) == []


def test_values_and_ddl_that_do_not_fit_are_both_told() -> None:
    """Neither hides the other."""
    ages = {"decode_misfit_values_total": 60.0, "collect_unread_ddl_total": 60.0}
    case = Case("misfits", {g(name): "0x60 3x60" for name in ages}, {"ages": ages})
    (trouble,) = find_troubles(case.look())
    assert "3 values" in trouble.what
    assert "3 messages" in trouble.what
    assert "gd_raw" in trouble.action
    assert "gd_ddl" in trouble.action


def test_the_table_is_whole() -> None:
    """Every state that can be seen has a case, every alert a state, every state a section."""
    assert {case.state for case in BAD} | FROM_OUTSIDE == set(BY_STATE)
    assert {state.name for state in STATES if state.tell is None} == FROM_OUTSIDE
    assert {state.alert for state in STATES} == set(RULE)
    sections = (DOCS / "alerts.md").read_text()
    assert all(f"\n### {state.alert}\n" in sections for state in STATES)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_severities_are_those_of_the_alerts(state: State) -> None:
    """A note passes by itself, and may have the alert of what does not."""
    wanted = {Severity.ERROR: {"critical"}, Severity.WARNING: {"warning"}}
    severity = RULE[state.alert]["labels"]["severity"]
    assert severity in wanted.get(state.severity, {"critical", "warning"})
    assert state.ends_status or not state.is_unready


def test_the_guide_has_the_same_table() -> None:
    """docs/alerts.md says of each state what the probe and the command do."""
    text = (DOCS / "alerts.md").read_text()
    for state in STATES:
        ready = "503" if state.is_unready else "200"
        ends = "69" if state.ends_status else "0"
        row = f"| {state.name} | {state.severity} | {ends} | {ready} | [{state.alert}](#{state.alert.lower()}) |"
        assert row in text


def group(name: str, case: Case, expression: str) -> dict[str, Any]:  # Any: YAML
    """One test of promtool's: how many alerts of a name fire at last."""
    common = {"slot": "orders", "instance": "a:19187", "job": "gaussdecode"}
    series = []
    for metric, values in case.series.items():
        labels = {**common, **dict.fromkeys(BY_NAME[metric].labels, "x")}
        text = ",".join(f'{key}="{value}"' for key, value in labels.items())
        series.append({"series": f"{metric}{{{text}}}", "values": values})
    fires = {"expr": expression, "eval_time": "110m", "exp_samples": [{"labels": "{}", "value": 1}]}
    return {"interval": "1m", "name": name, "input_series": series, "promql_expr_test": [fires]}


def test_alerts_fire_where_the_daemon_says_so(tmp_path: Path) -> None:
    """Of every case, bad and good: the rule fires, and no other does, or none."""
    tests = []
    for case in BAD:
        alert = BY_STATE[case.state].alert
        firing = 'count(ALERTS{alertstate="firing"})'
        this = f'count(ALERTS{{alertstate="firing",alertname="{alert}"}})'
        tests.append(group(f"{case.state} fires alone", case, f"{firing} == {this} == 1"))
    for case in GOOD:
        quiet = '1 - (count(ALERTS{alertstate="firing"}) or vector(0))'
        tests.append(group(f"{case.state} is quiet", case, quiet))
    file = tmp_path / "states.test.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests})
    )
    command = [find_tool("promtool"), "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_bounds_are_those_of_the_rules() -> None:
    """Where a state has a number of its own, the rule has the same."""
    assert f"> {states.LAG_BYTES / 1e9:.0f}e9" in RULE["GaussdecodeLagBytes"]["expr"]
    assert f"> {states.RETAINED_BYTES / 1e9:.0f}e9" in RULE["GaussdecodeRetainedWalGrowing"]["expr"]
    assert "[10m]" in RULE["GaussdecodeNoProgress"]["expr"]
    assert states.NO_PROGRESS_SECONDS == 600
    assert RULE["GaussdecodeTurnsHeld"]["expr"].endswith(f"> {states.HELD_SECONDS:.0f}")
    days = expiry.CERTIFICATE_SECONDS / 86400
    assert f"< {days:.0f} * 86400" in RULE["GaussdecodeCertificateEnds"]["expr"]
    near = RULE["GaussdecodeVirtualSlotNearItsEnd"]["expr"]
    assert f"> {states.VIRTUAL_SLOT_SHARE} *" in near
    assert "[30m]" in RULE["GaussdecodeReconnects"]["expr"]
    assert states.RESTART_SECONDS == 1800


def test_all_is_well() -> None:
    """Nothing to say of a daemon that streams; the probe says one word."""
    assert find_troubles(WELL) == []
    assert readiness([]) == (True, "ready")


def test_a_lag_that_is_not_known_is_no_trouble() -> None:
    """Nor is it none: the state of the connection says why."""
    unknown: Values = {
        g(name): {(): math.nan} for name in ("source_lag_seconds", "source_lag_bytes")
    }
    seen = dataclasses.replace(WELL, values=unknown, ages={"land_durable_lsn": 601.0})
    assert find_troubles(seen) == []


def test_a_disk_of_which_room_is_kept_says_so() -> None:
    """What is free and what is kept; a disk without any room is full."""
    full: Values = {g("land_disk_full"): {(): 1.0}, g("land_min_free_bytes"): {(): 2e9}}
    told = [
        find_troubles(dataclasses.replace(WELL, values={**full, g("land_free_bytes"): {(): free}}))[
            0
        ].what
        for free in (1.5e9, 0.0, 3e9)
    ]
    assert told[0] == (
        "The landing's disk has 1.5 GB left; landing.min-free-bytes is 2.0 GB. Nothing lands, "
        "and the server keeps WAL for the slot."
    )
    assert all(what.startswith("The landing's disk is full. Nothing") for what in told[1:])


def test_a_transaction_that_is_too_large_is_named() -> None:
    """With the command that lets it pass."""
    values: Values = {g("collect_spool_full"): {(): 1.0}, g("source_lag_seconds"): {(): 600.0}}
    reason = "transaction 7 needs more space than landing.spool-bytes (8MiB) allows"
    seen = dataclasses.replace(WELL, values=values, spool_reason=reason)
    cause, *others = find_causes(find_troubles(seen))
    assert others == []
    assert reason in cause.trouble.what
    assert "`systemctl restart gaussdecode@orders`" in cause.trouble.action
    assert [trouble.state.name for trouble in cause.consequences] == ["lagging"]


def test_the_source_that_holds_the_mark_is_named() -> None:
    """That which has for the longest; and what follows from it is told as its consequence."""
    values: Values = {
        g("collect_turn_held_seconds"): {("dn1",): 0.0, ("dn2",): 360.0, ("dn3",): 302.0},
        g("source_lag_seconds"): {(): 600.0},
    }
    cause, *others = find_causes(find_troubles(dataclasses.replace(WELL, values=values)))
    assert others == []
    assert "waited for source dn2 for 6" in cause.trouble.what
    assert [trouble.state.name for trouble in cause.consequences] == ["lagging"]


def test_the_worst_comes_first_and_lag_names_the_limit() -> None:
    """Errors before warnings, and what moves the limit stands in the action."""
    values: Values = {g("source_lag_seconds"): {(): 600.0}, g("land_disk_full"): {(): 1.0}}
    first, second = find_troubles(dataclasses.replace(WELL, values=values))
    assert [first.state.name, second.state.name] == ["disk-full", "lagging"]
    assert "landing.writer-lanes" in second.action


def seen_with(*names: str) -> list[Trouble]:
    """Troubles of these states, the worst first."""
    states = [state for state in STATES if state.name in names]
    found = [Trouble(state, f"{state.name}.", "Act.") for state in states]
    return sorted(found, key=lambda trouble: list(Severity).index(trouble.state.severity))


def test_a_cause_carries_what_follows_from_it() -> None:
    """One cause for a full disk with all that it brings; what has nothing to do with it stands alone."""
    found = find_causes(
        seen_with("disk-full", "no-progress", "lagging", "wal-retained", "misfits", "queues-full")
    )
    told = {c.trouble.state.name: {t.state.name for t in c.consequences} for c in found}
    assert told == {
        "disk-full": {"no-progress", "lagging", "wal-retained", "queues-full"},
        "misfits": set(),
    }
    assert found[0].to_record()["consequences"]


def test_a_cause_is_as_bad_as_what_it_brings() -> None:
    """A daemon that connects is a note; while it lags, the lag's warning comes before others."""
    first, second = find_causes(seen_with("not-yet-streaming", "lagging", "misfits"))
    assert (first.trouble.state.name, first.severity) == ("misfits", Severity.WARNING)
    assert (second.trouble.state.name, second.severity) == ("not-yet-streaming", Severity.WARNING)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_no_trouble_is_lost_among_causes(state: State) -> None:
    """What explains something explains what that explains; nothing explains itself."""
    assert state.name not in state.explains
    assert state.explains <= set(BY_STATE)
    for name in state.explains:
        assert BY_STATE[name].explains <= state.explains
    everything = seen_with(*BY_STATE)
    told = [t for c in find_causes(everything) for t in (c.trouble, *c.consequences)]
    assert sorted(t.what for t in told) == sorted(t.what for t in everything)


def test_the_limit_of_the_slot_is_doubled() -> None:
    """The command for the server has a figure, where it is known how much there is."""
    values: Values = {
        g("source_invalidation_seconds"): {(): 60.0},
        g("source_retained_wal_bytes"): {(): float(3 << 30)},
        g("source_safe_wal_bytes"): {(): float(1 << 29)},
    }
    (trouble,) = find_troubles(dataclasses.replace(WELL, values=values))
    assert (
        "`ALTER SYSTEM SET max_slot_wal_keep_size = '8GB'; SELECT pg_reload_conf();`"
        in trouble.action
    )


def test_commands_can_be_pasted() -> None:
    """Paths with blanks are quoted for the shell."""
    values: Values = {g("land_quarantined_tables"): {(): 1.0}}
    (trouble,) = find_troubles(
        dataclasses.replace(WELL, values=values, root=Path("/a b"), config=Path("/c.yaml"))
    )
    assert "`gaussdecode gaps '/a b'`" in trouble.action
    assert "`gaussdecode snapshot /c.yaml --table NAME`" in trouble.action


def test_changes_have_ages() -> None:
    """From the first value that is not zero, and from each that is another one."""
    changes = Changes(WATCHED)
    name = "decode_misfit_values_total"
    changes.note(1.0, {g(name): {("0",): 0.0}})
    assert changes.ages(2.0) == {}
    changes.note(3.0, {g(name): {("0",): 1.0, ("1",): 1.0}})
    changes.note(5.0, {g(name): {("0",): 1.0, ("1",): 1.0}})
    assert changes.ages(10.0) == {name: 7.0}
    changes.note(11.0, {g(name): {("0",): 2.0, ("1",): 1.0}})
    assert changes.ages(11.5) == {name: 0.5}


def test_figures_are_spelled_for_people() -> None:
    """Seconds, minutes, hours, days; bytes."""
    assert [span(s) for s in (3, 119, 600, 12000, 400000)] == [
        "3 s", "119 s", "10 min", "3 h 20 min", "4 days",
    ]  # fmt: skip
    assert [size(n) for n in (7, 1500, 99.96e3, 11e9)] == ["7 B", "1.5 KB", "100 KB", "11.0 GB"]
