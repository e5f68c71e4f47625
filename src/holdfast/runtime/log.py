"""Logging: structlog over the standard library, to stderr, as console lines or JSON."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import Processor

from holdfast.config.sections.log import LogSettings


def setup_logging(config: LogSettings, *, role: str, worker: str) -> None:
    """Configure the log of this process. May be called again after a reload."""
    as_json = config.format == "json" or (config.format == "auto" and not sys.stderr.isatty())
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_process(role, worker),
        structlog.processors.StackInfoRenderer(),
    ]
    last: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(sort_keys=True)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), sort_keys=False)]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(config.level.upper())


def _add_process(role: str, worker: str) -> Processor:
    """Name the process that logs. The key is not `worker`, which is a field of many log lines."""

    def add(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event["process"] = f"{role}/{worker}"
        return event

    return add
