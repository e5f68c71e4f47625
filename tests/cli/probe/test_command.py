"""`holdfast probe` as an operator uses it: real servers, a real terminal, and what it leaves on the screen."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.processes import reserved_ports, wait_until
from tests.balancer.probing import backends
from tests.balancer.probing.backends import HERE

COMMAND = [sys.executable, "-m", "holdfast.cli", "probe"]
CONFIG = """
balancer:
  healthchecks: {{web: {{type: tcp}}}}
  backends: {{web1: {{address: 127.0.0.1, port: 80, healthcheck: web}}}}
  frontends:
    www: {{address: 127.0.0.1, port: {port}, pools: [{{backends: {{web1: }}}}]}}
    dns: {{address: 127.0.0.1, port: 53, protocol: udp, pools: [{{backends: {{web1: }}}}]}}
"""


def probe(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, timeout=120)


def lines(done: subprocess.CompletedProcess[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the lines of the probes, and the summaries."""
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return [one for one in said if "summary" not in one], [one["summary"] for one in said if "summary" in one]


@pytest.fixture
def web() -> Iterator[int]:
    """Two backends behind one address, in turn."""
    names = cycle([b"web-1", b"web-2"])

    def manners(peer: Any) -> None:
        backends.saying(b"HTTP/1.1 200 OK\r\nX-Backend: " + next(names) + b"\r\nContent-Length: 0\r\n\r\n")(peer)

    with backends.server(manners) as port:
        yield port


def test_each_probe_is_a_line_and_each_target_a_summary(web: int) -> None:
    done = probe("--url", f"http://{HERE}:{web}/", "--count", "6", "--header", "X-Backend", "--json")
    probes, (summary,) = lines(done)
    assert done.returncode == 0, done.stderr
    assert len(probes) == 6
    assert {one["code"] for one in probes} == {"L7OK"}
    assert summary["answered_by"] == {"web-1": 3, "web-2": 3}
    assert summary["probes"] == summary["passed"] == 6
    assert set(summary["latency_ms"]) == {"p50", "p95", "p99", "max"}


def test_a_failed_probe_sets_the_exit_status(web: int) -> None:
    with reserved_ports(1) as (closed,):
        done = probe("--url", f"http://{HERE}:{web}/", "--url", f"tcp://{HERE}:{closed}", "--count", "3", "--json")
    _, summaries = lines(done)
    assert done.returncode == 1
    assert [(one["passed"], one["failed"]) for one in summaries] == [(3, 0), (0, 3)]
    assert summaries[1]["errors"] == {"L4CON": 3}
    assert summaries[1]["last_error"] == "L4CON Connection refused"


def test_the_frontends_of_a_configuration_are_probed_and_those_that_cannot_be_are_named(
    web: int, tmp_path: Path
) -> None:
    config = tmp_path / "holdfast.yaml"
    config.write_text(CONFIG.format(port=web))
    done = probe("--config", str(config), "--count", "2", "--json")
    _, (summary,) = lines(done)
    assert done.returncode == 0, done.stderr
    assert (summary["target"], summary["passed"]) == ("www", 2)
    assert done.stderr == "frontend dns uses udp: probe it with --type icmp, or by a --url\n"


def test_method_headers_and_client_certificate_are_those_of_a_health_check(tmp_path: Path) -> None:
    authority = backends.Authority(tmp_path)
    cert, key = authority.client_certificate(tmp_path / "mine")
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("Bearer s3same")
    asked = ["--count", "1", "--json", "--host", "www.example.org", "--ca", str(authority.file)]
    with or_skip(backends.nginx(tmp_path, authority)) as (http, _, https):
        for words in (
            ["--url", f"http://{HERE}:{http}/head-only", "--method", "HEAD"],
            ["--url", f"http://{HERE}:{http}/for-probes", "--request-header", "X-Probe: holdfast"],
            ["--url", f"http://{HERE}:{http}/with-token", "--request-header-file", f"Authorization: {token}"],
            ["--url", f"https://{HERE}:{https}/health", "--cert", str(cert), "--key", str(key)],
        ):
            done = probe(*asked, *words)
            assert done.returncode == 0, (words, done.stdout, done.stderr)
            assert probe(*asked, *words[:2]).returncode == 1, words


def test_without_a_terminal_it_prints_a_table_at_the_end(web: int) -> None:
    done = probe("--url", f"http://{HERE}:{web}/", "--count", "3", "--header", "X-Backend")
    assert done.returncode == 0, done.stderr
    assert "TARGET" in done.stdout
    assert "100.0%" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--url", "gopher://192.0.2.1"], "'gopher://192.0.2.1' cannot be probed: write one of"),
        (["--url", "tcp://192.0.2.1"], "'tcp://192.0.2.1' has no port: write tcp://192.0.2.1:PORT"),
        (["--url", "http://no.such.host.invalid/"], "'http://no.such.host.invalid/': cannot resolve the name"),
        (["--url", "http://[::1/"], "is not a URL"),
        (["--url", "http://192.0.2.1/", "--request-header", "x"], "headers is not a header: write its name"),
        (["--url", "https://192.0.2.1/", "--cert", "c.pem"], "cert-file needs key-file as well"),
        ([], "no frontend to probe: set a --config FILE that has one, or a --url"),
    ],
)
def test_an_invalid_target_is_one_sentence(words: list[str], sentence: str) -> None:
    done = probe(*words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_on_a_terminal_it_draws_pauses_resumes_and_quits(web: int) -> None:
    here, there = pty.openpty()
    words = ["--url", f"http://{HERE}:{web}/", "--interval", "0.02"]
    process = subprocess.Popen(
        [*COMMAND, *words],
        stdin=there,
        stdout=there,
        stderr=there,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
    )
    os.close(there)
    os.set_blocking(here, False)
    screen = b""

    def shows(words: bytes) -> bool:
        nonlocal screen
        with contextlib.suppress(OSError):
            screen += os.read(here, 65_536)
        return words in screen

    try:
        wait_until(lambda: shows(b"100.0%"), "probes are shown")
        os.write(here, b" ")
        wait_until(lambda: shows(b"paused: space resumes"), "it says that it is paused")
        screen = b""
        os.write(here, b" ")
        wait_until(lambda: shows(b"space pauses, q quits"), "it goes on")
        os.write(here, b"q")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(here)
