"""Build tables from landed changes with Spark: current state, history and changelog.

`apply` applies the changes of a landing to a target directory, up to the end of the log; run it again
for new changes, or use --follow. `query` runs SQL on the target, also on earlier states.

Examples:
  gaussdecode spark apply /var/lib/gaussdecode/orders /srv/orders --history
  gaussdecode spark apply /var/lib/gaussdecode/orders /srv/orders --follow
  gaussdecode spark apply /var/lib/gaussdecode/orders /srv/lake --format iceberg --catalog lake.shop
  gaussdecode spark query /srv/orders "SELECT count(*) FROM customers"
  gaussdecode spark query /srv/orders "SELECT * FROM customers" --lsn 16/B374D848
  gaussdecode spark verify /var/lib/gaussdecode/orders /srv/orders --dsn "host=db dbname=shop user=cdc"
  gaussdecode spark comments /var/lib/gaussdecode/orders /srv/lake --dsn "host=db dbname=shop user=cdc"
  gaussdecode spark status /var/lib/gaussdecode/orders /srv/orders
  gaussdecode spark schemas /var/lib/gaussdecode/orders shop.items
  gaussdecode spark columns /var/lib/gaussdecode/orders /srv/orders shop.items --was total=amount
  gaussdecode spark compact /srv/orders
  gaussdecode spark vacuum /srv/orders --older-than-days 7

Landing and target are directories, or URLs: s3://bucket/prefix, gs://, az://, abfss://, hdfs://, with
settings of the store after a question mark; see docs/spark.md#on-object-stores.
  gaussdecode spark apply s3://lake/orders "s3://lake/tables?region=eu-central-1"
"""

import argparse
from pathlib import Path
from typing import Final

from gaussdecode.operations.owner import work_as_owner_of
from gaussdecode.operations.spark import (
    apply,
    columns,
    comments,
    compact,
    query,
    schemas,
    status,
    vacuum,
    verify,
)
from gaussdecode.settings.load import load as load_config

_ACTIONS: Final = {
    "apply": (apply, "apply a landing's changes to a target"),
    "query": (query, "query a target in SQL"),
    "schemas": (schemas, "show the history of the columns of a landing's tables"),
    "columns": (columns, "resolve ambiguous column identity after DDL"),
    "compact": (compact, "merge small files of a target"),
    "vacuum": (vacuum, "remove old versions of a target"),
    "verify": (verify, "compare a target with its source"),
    "comments": (comments, "copy the source's comments to a target's tables"),
    "status": (status, "show how far a target has been applied"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, (action, text) in _ACTIONS.items():
        sub = actions.add_parser(name, help=text, description=text)
        sub.set_defaults(action=action.execute)
        action.add_arguments(sub)


def execute(args: argparse.Namespace) -> int:
    """Run the chosen action."""
    if getattr(args, "config", None) is not None:
        # The owner of the target need not be able to read it.
        args.config = load_config(args.config).with_password_read()
        if args.action is verify.execute:
            verify.check_source(args.config)
    if isinstance(getattr(args, "target", None), Path):
        work_as_owner_of(args.target)
    return int(args.action(args))
