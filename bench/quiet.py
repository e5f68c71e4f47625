"""Logging of measured code: errors only, to stderr, because stdout belongs to the figures."""

from __future__ import annotations

import logging
import sys

import structlog


def logs_to_stderr() -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
