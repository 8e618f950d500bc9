"""For each option the tests that show its effect, or its refusal, on each kind of source."""

import ast
from pathlib import Path

import pytest

from gaussdecode.operations.peek.postgresql import style_of
from gaussdecode.settings.options import OPTIONS
from gaussdecode.settings.rules import SourceKind
from gaussdecode.settings.source_sections import DecodingConfig

TESTS = Path(__file__).parents[1]
PEEK = "commands/test_peek.py"
GAUSS_PEEK = "commands/test_gauss_peek.py"
LANDED = "integration/test_gauss_options.py"
STYLES = "integration/test_gauss_source.py"
TABLE = "settings/test_rules.py"
COMMAND = "protocol/gaussdb/test_options.py"
# What all of them share: which servers are told, and which refuse.
FOR_ALL = [
    f"{COMMAND}::test_what_is_passed_on",
    f"{TABLE}::test_what_cannot_be_had_is_refused",
    f"{TABLE}::test_what_each_version_is_told",
]
SHOWN = {
    "include-xids": [
        f"{PEEK}::test_options_shape_the_output",
        f"{GAUSS_PEEK}::test_what_transactions_carry",
        f"{LANDED}::test_xid_and_time",
    ],
    "skip-empty-xacts": [
        f"{PEEK}::test_options_shape_the_output",
        f"{LANDED}::test_filters",
        f"{LANDED}::test_empty_transactions_are_recorded_unless_told_otherwise",
    ],
    "include-timestamp": [
        f"{PEEK}::test_options_shape_the_output",
        f"{GAUSS_PEEK}::test_what_transactions_carry",
        f"{LANDED}::test_xid_and_time",
    ],
    "only-local": [
        f"{PEEK}::test_only_local_drops_replicated_transactions",
        f"{LANDED}::test_filters",
        f"{LANDED}::test_origins",
    ],
    "white-table-list": [
        f"{PEEK}::test_options_shape_the_output",
        f"{COMMAND}::test_the_servers_white_list_is_never_narrower",
        f"{LANDED}::test_filters",
    ],
    "max-txn-in-memory": [
        f"{LANDED}::test_a_transaction_above_the_limit_goes_to_disk",
        f"{TABLE}::test_opengauss_takes_less_memory_than_gaussdb",
    ],
    "max-reorderbuffer-in-memory": [
        "settings/test_load.py::test_memory_limits_are_never_off",
        f"{TABLE}::test_opengauss_takes_less_memory_than_gaussdb",
    ],
    "desc-memory-limit": [
        "source/postgresql/test_known.py::test_nothing_is_lost_above_the_limit",
        "settings/test_load.py::test_what_the_daemon_bounds_itself",
    ],
    "include-user": [
        f"{GAUSS_PEEK}::test_users_are_named_and_left_out",
        f"{LANDED}::test_users",
    ],
    "exclude-userids": [f"{GAUSS_PEEK}::test_filters_by_user_reach_the_server"],
    "exclude-users": [
        f"{GAUSS_PEEK}::test_users_are_named_and_left_out",
        f"{LANDED}::test_users",
        f"{LANDED}::test_users_are_left_out_here_where_the_server_names_them",
    ],
    "dynamic-resolution": [f"{GAUSS_PEEK}::test_filters_by_user_reach_the_server"],
    "standby-connection": [
        f"{GAUSS_PEEK}::test_a_primary_refuses_standby_connections",
        f"{LANDED}::test_what_cannot_be_had_keeps_the_daemon_down",
    ],
    "sender-timeout": [
        "settings/test_dsn.py::test_what_the_configuration_says_elsewhere_is_added",
        f"{GAUSS_PEEK}::test_the_server_ends_a_stream_that_it_does_not_hear",
        f"{LANDED}::test_the_server_hears_often_enough",
    ],
    "change-log-max-len": [
        "decode/test_worker.py::test_a_result_above_what_is_kept_is_released",
        "settings/test_load.py::test_what_the_daemon_bounds_itself",
    ],
    "max-decode-to-sender-cache-num": [
        "decode/test_worker.py::test_a_result_above_what_is_kept_is_released",
        "settings/test_load.py::test_what_the_daemon_bounds_itself",
    ],
    "enable-heartbeat": [
        f"{PEEK}::test_keepalives_are_shown_on_request",
        f"{GAUSS_PEEK}::test_keepalives_show_as_heartbeats",
        f"{GAUSS_PEEK}::test_heartbeats_of_gaussdb_are_printed",
        f"{LANDED}::test_heartbeats_confirm_nothing",
    ],
    "parallel-decode-num": [
        f"{COMMAND}::test_serial_decoding_is_asked_for_in_so_many_words",
        f"{LANDED}::test_filters",
    ],
    "output-order": [
        f"{COMMAND}::test_a_landing_is_sent_by_lsn",
        "integration/test_gauss_csn.py::test_inverted_transactions_land_by_csn",
        f"{GAUSS_PEEK}::test_csn_order_needs_its_slot",
    ],
    "auto-advance": [
        f"{LANDED}::test_auto_advance_follows_a_serial_stream",
        f"{COMMAND}::test_a_parallel_stream_does_not_advance_by_itself",
    ],
    "skip-generated-columns": [
        "collect/test_tables.py::test_generated_columns_are_skipped",
        f"{LANDED}::test_generated_columns",
    ],
    "enable-ddl-decoding": [
        "integration/test_gauss_landing.py::test_ddl_that_gaussdb_sends_lands_between_its_rows"
    ],
    "enable-ddl-json-format": [
        "integration/test_gauss_landing.py::test_ddl_that_gaussdb_sends_lands_between_its_rows"
    ],
    "timezone-is-utc": [f"{LANDED}::test_times_land_in_utc"],
    "decode-sequence": [f"{TABLE}::test_what_cannot_be_had_is_refused"],
    "data-limit": [
        f"{PEEK}::test_output_ends_at_the_data_limit",
        f"{GAUSS_PEEK}::test_output_ends_at_the_data_limit",
    ],
    "logical-receiver-num": [f"{TABLE}::test_distributed_options_need_csn_order"],
    "slice-id": [f"{TABLE}::test_distributed_options_need_csn_order"],
    "start-position": [
        f"{GAUSS_PEEK}::test_start_position_leaves_out_what_lies_before",
        f"{LANDED}::test_start_position",
    ],
    "force-binary": [f"{TABLE}::test_serial_options_need_serial_decoding"],
    "decode-style": [
        f"{PEEK}::test_binary_style",
        f"{GAUSS_PEEK}::test_styles_are_the_products",
        f"{COMMAND}::test_plugin_and_mode_say_the_style",
    ],
    "sending-batch": [
        f"{GAUSS_PEEK}::test_styles_are_the_products",
        f"{COMMAND}::test_text_lands_in_batches_only",
    ],
    "parallel-queue-size": [f"{TABLE}::test_parallel_options_need_parallel_decoding"],
    "include-originid": [
        f"{GAUSS_PEEK}::test_filters_of_the_server",
        f"{LANDED}::test_origins",
    ],
}


def functions(path: Path) -> set[str]:
    """The tests in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_option_has_its_tests() -> None:
    """An option that is added needs a line above."""
    assert SHOWN.keys() == {option.name for option in OPTIONS}
    assert all(SHOWN.values())


@pytest.mark.parametrize("name", [*SHOWN, "all"])
def test_the_tests_are_there(name: str) -> None:
    """A test that is renamed or removed is missed here."""
    for where in [*SHOWN.get(name, []), *FOR_ALL]:
        path, _, function = where.partition("::")
        assert function in functions(TESTS / path), where


@pytest.mark.parametrize(
    ("given", "style"),
    [
        ({}, "t"),
        ({"decode-style": "j"}, "j"),
        ({"parallel-decode-num": "auto", "decode-style": "b"}, "b"),
        ({"parallel-decode-num": 2}, "b"),
        ({"parallel-decode-num": 1}, "t"),
    ],
)
def test_peek_heeds_the_style_with_a_chosen_number_of_decoders(
    given: dict[str, object], style: str
) -> None:
    """The default of PostgreSQL is auto, which is no parallel decoding yet."""
    assert style_of(DecodingConfig.of(SourceKind.POSTGRESQL, given)) == style
