"""Create, list, drop or advance the replication slot.

From its creation on the server keeps every change for the slot, until the daemon confirms
it or somebody drops the slot. The output has the columns of GaussDB's functions. On GaussDB
and openGauss the slot gets source.plugin, and is made, dropped and advanced on the primary.

Examples:
  gaussdecode slot create  /etc/gaussdecode/orders.yaml
  gaussdecode slot list    /etc/gaussdecode/orders.yaml
  gaussdecode slot advance /etc/gaussdecode/orders.yaml --upto-lsn 16/B374D848
  gaussdecode slot drop    /etc/gaussdecode/orders.yaml
"""

import argparse
import json
from pathlib import Path
from typing import Final

from gaussdecode.commands._arguments import lsn
from gaussdecode.commands._landed import refuse_landed
from gaussdecode.commands._slots import slots_of
from gaussdecode.commands._table import print_table
from gaussdecode.config import load
from gaussdecode.errors import EX_OK
from gaussdecode.settings import Config
from gaussdecode.source.slot import SlotState

_COLUMNS: Final = (
    "slot_name",
    "plugin",
    "slot_type",
    "database",
    "active",
    "restart_lsn",
    "confirmed_flush",
    "wal_status",
    "safe_wal_size",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="make the slot; changes are kept from here on")
    create.add_argument("--failover", action="store_true", help="standbys keep it (PostgreSQL 17)")
    create.set_defaults(act=_create)
    show = actions.add_parser("list", help="show all slots of the server")
    show.add_argument("--json", action="store_true", help="print all fields, one object a line")
    show.set_defaults(act=_list)
    drop = actions.add_parser("drop", help="remove the slot; what it has not delivered is lost")
    drop.set_defaults(act=_drop)
    advance = actions.add_parser("advance", help="skip changes; they are lost for this slot")
    advance.add_argument("--upto-lsn", type=lsn, metavar="LSN", required=True,
                         help="position to stand at afterwards")  # fmt: skip
    advance.set_defaults(act=_advance)
    for sub in (create, show, drop, advance):
        sub.add_argument("config", type=Path, help="configuration file of one slot")


def execute(args: argparse.Namespace) -> int:
    """Do what the action says."""
    config = load(args.config)
    args.act(config, args)
    return EX_OK


def _create(config: Config, args: argparse.Namespace) -> None:
    refuse_landed(config, "create the slot")
    lsn = slots_of(config).create(failover=args.failover)
    print_table(("slotname", "xlog_position"), [(config.slot, str(lsn))])


def _list(config: Config, args: argparse.Namespace) -> None:
    records = [_record(slot) for slot in slots_of(config).list()]
    if args.json:
        for record in records:
            print(json.dumps(record))
    else:
        print_table(_COLUMNS, [[_cell(record[name]) for name in _COLUMNS] for record in records])


def _record(slot: SlotState) -> dict[str, object]:
    return {
        "slot_name": slot.name,
        "plugin": slot.plugin,
        "slot_type": slot.slot_type,
        "database": slot.database,
        "active": slot.is_active,
        "active_pid": slot.active_pid,
        "restart_lsn": None if slot.restart_lsn is None else str(slot.restart_lsn),
        "confirmed_flush": None
        if slot.confirmed_flush_lsn is None
        else str(slot.confirmed_flush_lsn),
        "wal_status": slot.wal_status,
        "safe_wal_size": slot.safe_wal_size,
        "two_phase": slot.is_two_phase,
        "failover": slot.is_failover,
        "invalidation_reason": slot.invalidation_reason,
    }


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    return "" if value is None else str(value)


def _drop(config: Config, _args: argparse.Namespace) -> None:
    slots_of(config).drop()
    print(f"slot {config.slot} is dropped")


def _advance(config: Config, args: argparse.Namespace) -> None:
    refuse_landed(config, "advance the slot")
    lsn = slots_of(config).advance(args.upto_lsn)
    print_table(("slot_name", "end_lsn"), [(config.slot, str(lsn))])
