"""Files for node_exporter's textfile collector."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gaussdecode.console.metrics_file import write_metrics
from gaussdecode.errors import ConfigError
from gaussdecode.model.exposition import label_value


@given(
    st.text(st.characters(exclude_categories=["Cs"])).filter(lambda s: s.splitlines() in ([], [s]))
)
@example('"größe"\\n')
def test_labels_are_read_back(text: str) -> None:
    """Whatever a table is called, Prometheus reads its name."""
    (family,) = text_string_to_metric_families(f"# TYPE a gauge\na{{b={label_value(text)}}} 1\n")
    assert family.samples[0].labels == {"b": text}


def test_names_of_other_alphabets_pass_promtool() -> None:
    """As does a line break; its own words for what is wrong would be on standard error."""
    page = f"# HELP a x\n# TYPE a gauge\na{{b={label_value('größe 表' + chr(10))}}} 1\n"
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page.encode(), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_place_that_is_none(tmp_path: Path) -> None:
    """The error names the option, the file and what is allowed; nothing is left behind."""
    with pytest.raises(ConfigError, match=r"--metrics-file .* cannot be written: No such file"):
        write_metrics(tmp_path / "none" / "a.prom", "")
    (tmp_path / "a.prom").mkdir()
    with pytest.raises(ConfigError, match="directory that exists"):
        write_metrics(tmp_path / "a.prom", "")
    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]
