"""Run the daemon: follow the slot and land its changes, until stopped.

This is the service. It stays in the foreground, logs to standard error, and its exit status tells
systemd whether to restart it.

Examples:
  gaussdecode run /etc/gaussdecode/orders.yaml
  systemctl enable --now gaussdecode@orders
"""

import argparse
import os
from pathlib import Path

from gaussdecode import __version__, limits, logs
from gaussdecode.daemon.notify import Notifier
from gaussdecode.errors import EX_OK, ConfigError, GaussDecodeError, SourceError
from gaussdecode.host.access import user_name
from gaussdecode.host.lean_imports import forgo_pandas
from gaussdecode.ipc.process import Prepared
from gaussdecode.operations.ask_daemon import ask_status
from gaussdecode.operations.owner import load_as_owner
from gaussdecode.settings.sections import Config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("config", type=Path, help="configuration file of one slot")


def execute(args: argparse.Namespace) -> int:
    """Run the daemon."""
    forgo_pandas()
    config = load_as_owner(args.config)
    limits.allow_descriptors(config.descriptors)
    prepared = Prepared()
    prepared.start("gaussdecode.source.reader", config.source.kind)
    from gaussdecode.daemon.supervisor import Supervisor  # meanwhile: it takes as long

    logs.configure(config.monitoring.log_level, slot=config.slot)
    log = logs.get_logger("daemon")
    log.info(
        logs.Event.DAEMON_STARTED,
        version=__version__,
        root=str(config.landing.root),
        user=user_name(os.geteuid()),
    )
    notifier = Notifier.from_environment()
    try:
        Supervisor(config, notifier, prepared).run()
    except GaussDecodeError as error:
        told = _second_run(config, error) or error
        log.error(logs.Event.ERROR, reason=str(told), exit_status=told.exit_status)
        raise told from error.__cause__
    except Exception as error:
        limit = limits.reached(error)
        if limit is not None:
            log.error(logs.Event.ERROR, reason=str(limit), exit_status=limit.exit_status)
        raise
    finally:
        notifier.close()
        prepared.close()
    log.info(logs.Event.DAEMON_STOPPED)
    return EX_OK


def _second_run(config: Config, error: GaussDecodeError) -> ConfigError | None:
    """Say that the port is taken by the slot's own daemon, if it is; else None."""
    if not (isinstance(error, ConfigError) and str(error).startswith("monitoring.listen")):
        return None
    try:
        state = ask_status(config).get("state")
    except SourceError:
        return None
    return ConfigError(
        f"{config.path.name}: the daemon of slot {config.slot} runs already ({state}): it answers at "
        f"{config.monitoring.listen}; stop it before another run"
    )
