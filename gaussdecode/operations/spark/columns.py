"""Resolve ambiguous column identity: ``gaussdecode spark columns``."""

import argparse

from gaussdecode.errors import EX_OK
from gaussdecode.operations.spark.arguments import flag, landing_argument, target_argument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    landing_argument(parser)
    target_argument(parser)
    parser.add_argument("table", help="schema.table that is stopped")
    parser.add_argument(
        "--was",
        action="append",
        type=_was,
        default=[],
        metavar="NEW=OLD",
        help="a column and its earlier name; NEW= for a new column; columns without --was "
        "kept their names",
    )
    flag(parser, "--by-name", "all columns kept their names")
    parser.add_argument(
        "--versions",
        type=_versions,
        metavar="OLD:NEW",
        help="two versions of a table that is not stopped",
    )


def _was(text: str) -> tuple[str, str]:
    new, is_given, old = text.partition("=")
    if not is_given or not new:
        raise argparse.ArgumentTypeError(f"{text!r} is not NEW=OLD, or NEW= for a new column")
    return new, old


def _versions(text: str) -> tuple[str, str]:
    old, is_given, new = text.partition(":")
    if not is_given or not old or not new:
        raise argparse.ArgumentTypeError(f"{text!r} is not OLD:NEW, two versions of the table")
    return old, new


def execute(args: argparse.Namespace) -> int:
    """Show the question, or keep the declaration."""
    from gaussdecode.spark.log.landing import Landing
    from gaussdecode.spark.merge.column_identity import decide, question_of
    from gaussdecode.spark.target.store import Target

    store = Target(args.target)
    question = question_of(Landing(args.root), store, args.table, args.versions)
    if not args.was and not args.by_name:
        print(f"{question.new.title}: {question.why}")
        for word, schema in (("before", question.old), ("after", question.new)):
            names = (f"{c.true_name} {_number_text(c.number)}" for c in schema.columns)
            print(f"  {word}: {', '.join(names)}")
        print("declare how columns match with --was NEW=OLD, or --by-name")
        return EX_OK
    with store.locked():
        decide(question, store, dict(args.was))
    print(f"{question.new.title}: kept in {args.target}; apply again")
    return EX_OK


def _number_text(number: int | None) -> str:
    return "(unknown)" if number is None else f"({number})"
