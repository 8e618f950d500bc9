"""The alert rules and the dashboard: what needs no running daemon."""

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from kit.install import find_tool

from gaussdecode.metrics.table import BY_NAME

ROOT = Path(__file__).parents[1]
PROMETHEUS = ROOT / "config" / "prometheus"
RULES = PROMETHEUS / "gaussdecode.rules.yml"
TESTS = PROMETHEUS / "gaussdecode.rules.test.yml"
DASHBOARD = ROOT / "config" / "grafana" / "gaussdecode.json"
ALERTS = ROOT / "docs" / "alerts.md"


def rules() -> list[dict[str, Any]]:  # Any: YAML
    """All alerts."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:  # Any: JSON
    """All panels of the dashboard, those of rows included."""
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        found += [panel, *panel.get("panels", ())]
    return found


def promtool(*arguments: str) -> str:
    """Run promtool; it must be content."""
    done = subprocess.run(
        [find_tool("promtool"), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_rules_and_example() -> None:
    """The rules and the example configuration are right."""
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(RULES))
    promtool("check", "config", str(PROMETHEUS / "prometheus.yml"))


def test_more_slots_are_more_targets(tmp_path: Path) -> None:
    """With the comments taken away before the targets they are there, and promtool is content."""
    text = re.sub(r"(?m)^( +)# - ", r"\1- ", (PROMETHEUS / "prometheus.yml").read_text())
    path = tmp_path / "prometheus.yml"
    path.write_text(text)
    (tmp_path / RULES.name).write_text(RULES.read_text())
    promtool("check", "config", str(path))
    (job,) = yaml.safe_load(text)["scrape_configs"]
    (group,) = job["static_configs"]
    assert group["targets"] == [
        "127.0.0.1:19187",
        "127.0.0.1:19188",
        "127.0.0.1:19189",
        "db2:19187",
    ]


def test_promtool_runs_the_rules_tests() -> None:
    """Every alert fires when it must and is quiet when it must be."""
    promtool("test", "rules", str(TESTS))


def test_every_alert_has_a_test_that_fires_and_one_that_is_quiet() -> None:
    """No alert is left out of the rule tests."""
    fired: set[str] = set()
    quiet: set[str] = set()
    for group in yaml.safe_load(TESTS.read_text())["tests"]:
        for case in group["alert_rule_test"]:
            (fired if case["exp_alerts"] else quiet).add(case["alertname"])
            several = len(group["input_series"]) > 1
            quiet |= {case["alertname"]} if several and case["exp_alerts"] else set()
    assert {rule["alert"] for rule in rules()} == fired == quiet


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_every_alert_has_a_runbook(rule: dict[str, Any]) -> None:  # Any: YAML
    """Its section exists in docs/alerts.md, under the alert's own name."""
    url = rule["annotations"]["runbook_url"]
    assert url == f"http://{{{{ $labels.instance }}}}/alerts#{rule['alert'].lower()}"
    assert "runbook" not in rule["annotations"]
    assert f"\n### {rule['alert']}\n" in ALERTS.read_text()
    assert rule["labels"]["severity"] in {"warning", "critical"}


def test_all_metrics_that_are_asked_for_exist() -> None:
    """Rules and dashboard name metrics of the table only."""
    text = RULES.read_text() + DASHBOARD.read_text()
    names = set(re.findall(r"\bgaussdecode_\w+", text)) - {"gaussdecode_rules"}
    assert names <= set(BY_NAME)


def generator() -> ModuleType:
    """The script that writes the dashboard."""
    path = DASHBOARD.with_name("generate.py")
    spec = importlib.util.spec_from_file_location("generate_dashboard", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_dashboard_is_what_the_script_writes() -> None:
    """The JSON is up to date."""
    assert generator().build() == DASHBOARD.read_text()


def test_dashboard_fits_its_grid() -> None:
    """Panels neither overlap nor leave the 24 columns."""
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


def test_first_row_mirrors_the_servers_function() -> None:
    """The columns of gs_get_parallel_decode_status() come first."""
    titles = [panel["title"] for panel in panels()]
    assert titles[1:7] == [
        "read change queue length",
        "decode change queue length",
        "parallel_decode_num",
        "reader LSN",
        "working transactions",
        "their memory",
    ]
