"""Create, adopt, list, drop or advance the replication slot, or accept a gap.

From its creation on, the server keeps every change for the slot, until the daemon confirms it or the
slot is dropped. The output has the columns of GaussDB's functions. On GaussDB and openGauss the slot
uses source.plugin, and is created, dropped and advanced on the primary.

create also creates landing.root and the landing's first entry. The daemon creates neither, because a
missing or empty root may be a file system that is not mounted. adopt begins a landing with an
existing slot at its present position: changes that it has confirmed before do not land.

accept-gap is for a slot that was lost, dropped, created again or advanced. Stop the daemon first. The
command creates the slot again if needed, records the missing positions as an entry of kind gap, and
lets the daemon continue after them in a new epoch. It wants the position where the gap begins, typed or
as --from-lsn, and refuses if nothing is missing. With --until-lsn it skips changes that the server
cannot decode: it advances the slot to that position, and the changes committed up to it are the gap.

Examples:
  gaussdecode slot create  /etc/gaussdecode/orders.yaml
  gaussdecode slot adopt   /etc/gaussdecode/orders.yaml
  gaussdecode slot list    /etc/gaussdecode/orders.yaml
  gaussdecode slot advance /etc/gaussdecode/orders.yaml --upto-lsn 16/B374D848
  gaussdecode slot drop    /etc/gaussdecode/orders.yaml
  gaussdecode slot accept-gap /etc/gaussdecode/orders.yaml --from-lsn 16/B374D848
  gaussdecode slot accept-gap /etc/gaussdecode/orders.yaml --until-lsn now
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gaussdecode.console.arguments import lsn
from gaussdecode.console.signals import Interrupt, interruptible
from gaussdecode.console.table import print_table
from gaussdecode.errors import EX_OK, ConfigError, GaussDecodeError
from gaussdecode.model.lsn import Lsn
from gaussdecode.operations.accept_gap import END, Hole, open_log
from gaussdecode.operations.begin_landing import begin_landing, prepare_root, refuse_same_database
from gaussdecode.operations.landing_guards import has_landing, refuse_landed
from gaussdecode.operations.owner import load_as_owner
from gaussdecode.operations.slots import slots_of
from gaussdecode.settings.sections import Config
from gaussdecode.source.slot import SlotState

_COLUMNS: Final = (
    "slot_name",
    "plugin",
    "slot_type",
    "database",
    "active",
    "restart_lsn",
    "confirmed_flush",
    "confirmed_csn",
    "wal_status",
    "safe_wal_size",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    create = actions.add_parser("create", help="create the slot, and begin its landing")
    create.add_argument("--failover", action="store_true", help="standbys keep it (PostgreSQL 17)")
    create.add_argument("--no-landing", action="store_true", help="the slot only, for peek and get")
    create.set_defaults(act=_create)
    adopt = actions.add_parser("adopt", help="begin the landing with an existing slot")
    adopt.set_defaults(act=_adopt)
    show = actions.add_parser("list", help="show all slots of the server")
    show.add_argument("--json", action="store_true", help="print all fields, one object a line")
    show.set_defaults(act=_list)
    drop = actions.add_parser(
        "drop", help="drop the slot; changes that it has not delivered are lost"
    )
    drop.add_argument(
        "--yes", action="store_true", help="do not ask, even if a landing depends on it"
    )
    drop.set_defaults(act=_drop)
    advance = actions.add_parser("advance", help="skip changes; they are lost for this slot")
    advance.add_argument(
        "--upto-lsn", type=lsn, metavar="LSN", required=True, help="position to advance to"
    )
    advance.set_defaults(act=_advance)
    accept = actions.add_parser("accept-gap", help="continue after changes that are lost for good")
    accept.add_argument(
        "--from-lsn", type=lsn, metavar="LSN", help="position where the gap begins, as confirmation"
    )
    accept.add_argument(
        "--until-lsn",
        type=_lsn_or_now,
        metavar="LSN",
        help="skip changes committed up to there; now: up to the present end of WAL",
    )
    accept.add_argument("--failover", action="store_true", help="as for create")
    accept.set_defaults(act=_accept_gap)
    for sub in (create, adopt, show, drop, advance, accept):
        sub.add_argument("config", type=Path, help="configuration file of one slot")


def _lsn_or_now(text: str) -> Lsn:
    return END if text == "now" else lsn(text)


def execute(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    config = load_as_owner(args.config)
    args.act(config, args)
    return EX_OK


def _create(config: Config, args: argparse.Namespace) -> None:
    refuse_landed(config, "create the slot")
    refuse_same_database(config)
    if not args.no_landing:
        prepare_root(config)
    made: dict[str, Lsn] = {}
    with interruptible() as interrupt:
        try:
            _make_slots(config, args, interrupt, made)
            if not args.no_landing:
                begin_landing(config, made)
        except GaussDecodeError:
            if len(config.members) > 1:
                _take_back(config, made)
            raise
    _print_slots(config, made)


def _make_slots(
    config: Config, args: argparse.Namespace, interrupt: Interrupt, made: dict[str, Lsn]
) -> None:
    """Create the slot of each source, or none if a signal comes; afterwards the interrupt is held."""
    try:
        for name, member in config.members.items():
            interrupt.release()
            made[name] = slots_of(member).create(
                interrupt, failover=args.failover, is_landed=not args.no_landing
            )
    except KeyboardInterrupt:
        _take_back(config, made)
        raise


def _take_back(config: Config, made: Mapping[str, Lsn]) -> None:
    """Drop slots that were just created: an unread slot would fill its server's disk."""
    for name in made:
        member = config.members[name]
        slots_of(member).drop()
        print(f"slot {member.slot} of {name} is dropped again", file=sys.stderr)


def _print_slots(config: Config, lsns: Mapping[str, Lsn]) -> None:
    """Print each slot's position, as the server's own function shows it."""
    rows = [(name, config.members[name].slot, str(lsn)) for name, lsn in lsns.items()]
    if len(rows) == 1:
        print_table(("slotname", "xlog_position"), [row[1:] for row in rows])
    else:
        print_table(("source", "slotname", "xlog_position"), rows)


def _adopt(config: Config, _args: argparse.Namespace) -> None:
    refuse_landed(config, "adopt the slot")
    _print_slots(config, begin_landing(config))


def _list(config: Config, args: argparse.Namespace) -> None:
    """List the slots of every source's server."""
    records: list[dict[str, object]] = [
        {**({"source": name} if config.is_several else {}), **_record(slot)}
        for name, member in config.members.items()
        for slot in slots_of(member).list()
    ]
    if args.json:
        for record in records:
            print(json.dumps(record))
        return
    columns = ("source", *_COLUMNS) if config.is_several else _COLUMNS
    print_table(columns, [[_cell(record[name]) for name in columns] for record in records])


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
        "confirmed_csn": slot.confirmed_csn,
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


def _drop(config: Config, args: argparse.Namespace) -> None:
    for member in config.members.values():
        _may_drop(member, args)
    for member in config.members.values():
        slots_of(member).drop()
        print(f"slot {member.slot} is dropped")


def _may_drop(config: Config, args: argparse.Namespace) -> None:
    """Check that slots can be dropped, and that the user means it; all of them before dropping any."""
    slots = slots_of(config)
    slot = next((found for found in slots.list() if found.name == config.slot), None)
    if slot is not None and slot.is_active:
        raise ConfigError(
            f"{config.path.name}: slot {config.slot} is in use by process "
            f"{slot.active_pid or 'unknown'} of the server, and such a slot cannot be dropped; stop its reader first (systemctl stop gaussdecode@{config.name})"
        )
    if slot is not None and has_landing(config) and not args.yes:
        _confirm_drop(config)


def _confirm_drop(config: Config) -> None:
    """Ask for the slot's name.

    Raises:
        ConfigError: it was not given, or there is no terminal to ask.
    """
    text = (
        f"the landing {config.landing.root} depends on slot {config.slot}: without it, changes "
        "committed from now on never land there"
    )
    if not sys.stdin.isatty():
        raise ConfigError(f"{config.path.name}: {text}; to drop it all the same: --yes")
    print(text, file=sys.stderr)
    if _answer("The slot's name, to drop it: ") != config.slot:
        raise ConfigError(f"{config.path.name}: not confirmed; the slot was left as it is")


def _answer(question: str) -> str:
    """Ask the user at the terminal."""
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def _accept_gap(config: Config, args: argparse.Namespace) -> None:
    if config.cuts_together:
        raise ConfigError(
            f"{config.path.name}: a gap cannot be accepted in a landing of several sources or in the order "
            "of CSNs: afterwards nothing would tell up to which CSN it is complete. Land into a new root"
        )
    with open_log(config) as log:
        hole = Hole.find(config, log, args.until_lsn)
        _confirm_gap(config, hole, args.from_lsn)
        entry = hole.accept(log, failover=args.failover)
    (position,) = entry.positions.values()
    print_table(
        ("slot_name", "entry", "from_lsn", "until_lsn", "epoch"),
        [
            (
                config.slot,
                str(entry.n),
                str(hole.gap.from_lsn),
                str(Lsn(position.lsn)),
                str(position.epoch),
            )
        ],
    )
    print(
        "Transactions that ended in between are missing; the daemon goes on after them. To put "
        "the tables right: `gaussdecode snapshot`, then `gaussdecode spark apply --accept-gaps`."
    )


def _confirm_gap(config: Config, hole: Hole, given: Lsn | None) -> None:
    """Have the user confirm the exact beginning of the gap.

    Raises:
        ConfigError: it was not.
    """
    begin = hole.gap.from_lsn
    text = f"{hole.gap.text}. Everything up to {begin} has landed; what ended after it is lost"
    if given is None and not sys.stdin.isatty():
        raise ConfigError(
            f"{config.path.name}: {text}; to accept that: gaussdecode slot accept-gap "
            f"{config.path} --from-lsn {begin}"
        )
    if given is None:
        made = "A new slot will be made. " if hole.needs_slot else ""
        print(f"{text}. {made}", file=sys.stderr)
        if _answer("The position where the gap begins, to accept it: ") != str(begin):
            raise ConfigError(f"{config.path.name}: not confirmed; nothing was changed")
    elif given != begin:
        raise ConfigError(
            f"{config.path.name}: the gap begins at {begin}, not at {given}; nothing was changed"
        )


def _advance(config: Config, args: argparse.Namespace) -> None:
    refuse_landed(config, "advance the slot")
    lsn = slots_of(config).advance(args.upto_lsn)
    print_table(("slot_name", "end_lsn"), [(config.slot, str(lsn))])
