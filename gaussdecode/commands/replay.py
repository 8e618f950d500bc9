"""Land a recording made by `gaussdecode capture`, as the daemon would have landed it.

Needs no server. The landing is created, or continued where it ends: landing the same
recording again adds nothing, and recordings must follow each other without a gap.

Examples:
  gaussdecode replay orders.capture --root /var/tmp/orders
  gaussdecode replay orders.capture --root /var/tmp/orders --decoders 4
"""

import argparse
import time
from pathlib import Path

from gaussdecode import logs
from gaussdecode.commands._arguments import count
from gaussdecode.commands._lean import forgo_pandas
from gaussdecode.commands._signals import until_signal
from gaussdecode.daemon.pipeline import Pipeline
from gaussdecode.daemon.snapshot import DaemonFacts
from gaussdecode.errors import EX_OK, ConfigError
from gaussdecode.model.lsn import Lsn
from gaussdecode.options import BY_NAME, SourceKind
from gaussdecode.settings import (
    Config,
    DecodingConfig,
    LandingConfig,
    MonitoringConfig,
    RingConfig,
    SourceConfig,
)
from gaussdecode.source.capture import Capture


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, help="recording to land")
    parser.add_argument("--root", type=Path, required=True, help="directory of the landing")
    parser.add_argument("--decoders", type=count, default=1, metavar="N", help="1 to 20, else 1")
    parser.add_argument("--white-table-list", default="", metavar="LIST", help="schema.table,...")
    parser.add_argument("--verbose", action="store_true", help="log every publication")


def execute(args: argparse.Namespace) -> int:
    """Run one session over the recording, and say what it came to."""
    forgo_pandas()
    config = _config(args)
    logs.configure("info" if args.verbose else "warning", slot=config.slot)
    facts = DaemonFacts(
        slot=config.slot,
        root=config.landing.root,
        started_time=time.time(),
        decoder_count=config.decoding.parallel_decode_num,
        budget_bytes=sum(config.memory_budget().values()),
    )
    with until_signal() as stop, Pipeline(config, facts, stop.is_set) as pipeline:
        pipeline.session(pipeline.check, lambda: None).run()
        is_stopped = stop.is_set()
    print(f"{config.landing.root}: landed up to {Lsn(facts.durable_lsn)}, entry {facts.entry}")
    if is_stopped:
        raise KeyboardInterrupt
    return EX_OK


def _config(args: argparse.Namespace) -> Config:
    """Make the configuration that a file would give.

    Raises:
        ConfigError: the file is no recording, or an argument is out of range.
    """
    capture = Capture(args.file)
    slot = capture.header.identity.slot
    capture.close()
    try:
        BY_NAME["parallel-decode-num"].type.read(args.decoders)
        BY_NAME["white-table-list"].type.read(args.white_table_list)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return Config(
        path=args.file,
        slot=slot,
        source=SourceConfig(kind=SourceKind.CAPTURE, file=args.file.resolve()),
        decoding=DecodingConfig(
            parallel_decode_num=args.decoders, white_table_list=args.white_table_list
        ),
        landing=LandingConfig(root=args.root.resolve()),
        ring=RingConfig(),
        monitoring=MonitoringConfig(),
    )
