"""`holdfast probe`: probes virtual addresses as a client would, and shows latencies and errors.

Exit codes: 0 every probe passed, 1 a probe failed, 2 nothing to probe.
"""

from __future__ import annotations

import json
import random
import select
import socket
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

import click
import msgspec

from holdfast.balancer.probing.checks import registry
from holdfast.balancer.probing.external import NotAUrl, Observation, Url, of_frontends
from holdfast.balancer.probing.messages import ProbeResult, TargetSpec
from holdfast.balancer.probing.prober import Prober
from holdfast.cli.common.config_flags import effective
from holdfast.cli.probe.screen import Screen, table
from holdfast.config.loading.section import unfit
from holdfast.config.sections.healthcheck import HealthCheck, split_header
from holdfast.model.base.time import seconds

FAILED = 1
NOTHING_TO_PROBE = 2
_NS = 1_000_000_000
_DRAW_EVERY = 0.25


class NothingToProbe(click.ClickException):
    exit_code = NOTHING_TO_PROBE


@click.command()
@click.option("--config", "config_file", metavar="FILE", help="Probe the frontends of this configuration.")
@click.option(
    "--url", "urls", multiple=True, help="Probe this http://, https://, tcp:// or icmp:// URL. Can be repeated."
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(list(registry())),
    default="tcp",
    show_default=True,
    help="Type of probe for frontends.",
)
@click.option(
    "--method", type=click.Choice(["GET", "HEAD"]), default="GET", help="Method of the request (http, https)."
)
@click.option("--path", default="/", show_default=True, help="Path to request from frontends (http, https).")
@click.option("--host", default="", help="Host header and TLS server name.")
@click.option(
    "--request-header",
    "headers",
    multiple=True,
    metavar="NAME:VALUE",
    help="Send this header (http, https). Can be repeated.",
)
@click.option(
    "--request-header-file",
    "header_files",
    multiple=True,
    metavar="NAME:FILE",
    help="Send this header with the value in FILE, for a secret. Can be repeated.",
)
@click.option("--ca", metavar="FILE", help="Trusted authorities (https).")
@click.option("--cert", metavar="FILE", help="Client certificate (https); needs --key.")
@click.option("--key", metavar="FILE", help="Private key of the client certificate.")
@click.option("--insecure", is_flag=True, help="Accept any certificate.")
@click.option(
    "--header", default="", metavar="NAME", help="Count answers by this response header, to see the backends."
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.001),
    default=0.1,
    show_default=True,
    help="Seconds from the start of one probe to the next.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=0.001), default=2.0, show_default=True, help="Timeout of a probe in seconds."
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many probes per target.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per probe, and a summary per target.")
def probe(
    config_file: str | None,
    urls: Sequence[str],
    kind: Literal["icmp", "tcp", "http", "https"],
    method: Literal["GET", "HEAD"],
    path: str,
    host: str,
    headers: Sequence[str],
    header_files: Sequence[str],
    ca: str | None,
    cert: str | None,
    key: str | None,
    insecure: bool,
    header: str,
    interval: float,
    timeout: float,
    count: int | None,
    as_json: bool,
) -> None:
    """Probe virtual addresses as a client would, with a new connection for each probe. Space pauses, q quits.

    Exits with 0 if every probe passed, 1 if one failed, 2 if there is nothing to probe.
    """
    settings = HealthCheck(
        type=kind,
        method=method,
        path=path,
        headers=tuple(headers),
        header_files=tuple(_absolute_header_file(one) for one in header_files),
        host=host or None,
        verify=not insecure,
        ca_file=_absolute(ca),
        cert_file=_absolute(cert),
        key_file=_absolute(key),
        interval=seconds(interval),
        timeout=seconds(timeout),
    )
    if sentence := unfit(msgspec.structs.replace(settings, type="https")):
        raise NothingToProbe(f"{sentence.replace('_', '-')} (see holdfast probe --help)")
    targets = _url_targets(urls, settings, header) if urls else _frontend_targets(config_file, settings, header)
    run = ProbeRun(targets, count, _print_json if as_json else None)
    with Screen(live=not as_json and sys.stdout.isatty()) as screen:
        run.run(screen)
    _print_summary(run.seen.values(), as_json=as_json)
    if any(seen.failed for seen in run.seen.values()):
        raise click.exceptions.Exit(FAILED)


def _absolute(file: str | None) -> str | None:
    return None if file is None else str(Path(file).absolute())


def _absolute_header_file(given: str) -> str:
    name, file = split_header(given)
    return f"{name}: {_absolute(file)}" if file else given


def _url_targets(urls: Sequence[str], settings: HealthCheck, header: str) -> list[TargetSpec]:
    targets: list[TargetSpec] = []
    for text in urls:
        try:
            url = Url.parse(text, settings)
            addresses = dict.fromkeys(str(found[4][0]) for found in socket.getaddrinfo(url.host, None))
        except NotAUrl as sentence:
            raise NothingToProbe(str(sentence)) from sentence
        except OSError as error:
            raise NothingToProbe(f"{text!r}: cannot resolve the name ({error.strerror})") from error
        targets += [url.at(address, only=len(addresses) == 1, backend_header=header) for address in addresses]
    return targets


def _frontend_targets(config_file: str | None, settings: HealthCheck, header: str) -> list[TargetSpec]:
    targets, left_out = of_frontends(effective(config_file).config.balancer.frontends, settings, header)
    for sentence in left_out:
        click.echo(sentence, err=True)
    if not targets:
        raise NothingToProbe("no frontend to probe: set a --config FILE that has one, or a --url")
    return targets


class ProbeRun:
    """Probes all targets until each has had its probes or the operator quits."""

    def __init__(
        self, targets: Sequence[TargetSpec], count: int | None, on_result: Callable[[ProbeResult], None] | None
    ) -> None:
        self._left = list(targets)
        self._count = count
        self._on_result = on_result
        self._prober = Prober(_now, lambda: random.uniform(-1, 1), self._note, lambda _late: None)
        self._changed = True
        self.seen = {target.id: Observation(target.id) for target in targets}
        self.paused = False

    def run(self, screen: Screen) -> None:
        try:
            while self._assign():
                due = self._prober.turn()
                ahead = max(0.0, min(_DRAW_EVERY, (due - _now()) / _NS))
                select.select([self._prober.fileno(), *screen.keyboard], [], [], ahead)
                self._on_key(screen.key())
                screen.draw(self.seen.values(), paused=self.paused)
        except KeyboardInterrupt:
            pass
        finally:
            self._prober.close()

    def _assign(self) -> bool:
        """Assign the targets that have probes left, or none during a pause. Returns False when all are done."""
        if self._changed:
            self._changed = False
            self._left = [one for one in self._left if self._count is None or self.seen[one.id].probes < self._count]
            self._prober.assign(() if self.paused else self._left, {})
        return bool(self._left)

    def _on_key(self, key: str) -> None:
        if key == "q":
            raise KeyboardInterrupt
        if key == " ":
            self.paused = not self.paused
            self._changed = True

    def _note(self, result: ProbeResult) -> None:
        seen = self.seen[result.target]
        if self._count is not None and seen.probes >= self._count:
            return
        seen.note(result)
        self._changed |= seen.probes == self._count
        if self._on_result is not None:
            self._on_result(result)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _print_json(result: ProbeResult) -> None:
    document = {
        "target": result.target,
        "time": round(time.time(), 3),
        "passed": result.passed,
        "code": result.code.value,
        "latency_ms": round(result.latency.total_seconds() * 1e3, 3),
        "late": result.late,
        "detail": result.detail,
        "answered_by": result.answered_by,
    }
    click.echo(json.dumps(document))


def _print_summary(seen: Iterable[Observation], *, as_json: bool) -> None:
    if as_json:
        for one in seen:
            click.echo(json.dumps({"summary": one.summary()}))
    else:
        from rich.console import Console

        Console().print(table(seen))
