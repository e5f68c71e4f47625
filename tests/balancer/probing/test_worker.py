"""The prober's process: stopped, killed, without a reader, and in namespaces that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.balancer.probing.channel import frame
from holdfast.balancer.probing.messages import (
    Assignment,
    ProbeCode,
    ProbeInterval,
    TargetSpec,
)
from holdfast.balancer.probing.worker import Overload
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.time import Duration, seconds
from holdfast.runtime.control import Request, ask
from holdfast.testing.fault import fault
from holdfast.testing.real.netns import NamespaceNetwork
from holdfast.testing.real.processes import run, tool
from tests.balancer.probing import backends
from tests.balancer.probing.backends import HERE, Authority
from tests.balancer.probing.harness import PATIENT
from tests.balancer.probing.prober_worker import ProberWorker, prober_worker

TENTH = seconds(0.1)


def with_prober(folder: Path, scenario: Callable[[ProberWorker], Awaitable[None]]) -> None:
    async def run() -> None:
        async with prober_worker(folder) as worker:
            await scenario(worker)

    asyncio.run(run())


def web(port: int, name: str = "web", **settings: object) -> TargetSpec:
    check = HealthCheck(**{"type": "http", "timeout": PATIENT, "interval": TENTH, **settings})  # type: ignore[arg-type]
    return TargetSpec(name, HERE, port, check)


def undecided(*targets: TargetSpec) -> Assignment:
    """An assignment of targets whose every result counts."""
    return Assignment(targets, {target.id: ProbeInterval.FAST for target in targets})


def test_it_probes_its_assignment_and_reports(tmp_path: Path) -> None:
    async def scenario(prober: ProberWorker) -> None:
        prober.client.assign(Assignment((web(port), web(1, "closed", type="tcp")), {"web": ProbeInterval.FAST}))
        await prober.until(lambda: len({result.target for result in prober.results}) == 2, "both are reported")
        await prober.until(lambda: prober.state == "probing 2 targets", "the board tells")
        codes = {result.target: result.code for result in prober.results}
        assert codes == {"web": ProbeCode.L7OK, "closed": ProbeCode.L4CON}
        assert prober.reports[-1].targets == 2

    with backends.server(backends.slow) as port:
        with_prober(tmp_path, scenario)


def test_passes_of_a_target_that_is_up_are_counted_and_not_sent(tmp_path: Path) -> None:
    async def scenario(prober: ProberWorker) -> None:
        prober.client.assign(Assignment((web(port),)))
        await prober.until(lambda: sum(report.passed for report in prober.reports) >= 10, "passes are counted")
        assert [result.passed for result in prober.results] == [True]
        assert {report.passing for report in prober.reports if report.passed} == {("web",)}
        metrics = (await ask(prober.paths.socket("prober"), Request("metrics"))).result
        counted = re.search(r'^holdfast_probes_total{.*code="L7OK".*} (\S+)$', metrics, re.MULTILINE)
        assert counted
        assert float(counted[1]) >= 11

    with backends.server(backends.slow) as port:
        with_prober(tmp_path, scenario)


def test_it_ends_in_order_in_the_middle_of_its_work(tmp_path: Path) -> None:
    async def scenario(prober: ProberWorker) -> None:
        prober.client.assign(undecided(*(web(port, f"web{index}") for index in range(20))))
        await prober.until(lambda: len(prober.results) > 20, "it works")
        prober.process.stop()
        assert "task failed" not in prober.process.output
        assert "worker failed" not in prober.process.output

    with backends.server(backends.slow) as port:
        with_prober(tmp_path, scenario)


def test_it_reports_also_without_results(tmp_path: Path) -> None:
    async def scenario(prober: ProberWorker) -> None:
        await prober.until(lambda: len(prober.reports) >= 5, "empty reports come")
        await prober.until(lambda: prober.state == "waiting: balancer", "the board tells")
        assert prober.results == []

    with_prober(tmp_path, scenario)


def test_a_paced_order_changes_the_interval(tmp_path: Path) -> None:
    async def scenario(prober: ProberWorker) -> None:
        prober.client.assign(Assignment((web(port, interval=seconds(3_600), fast_interval=TENTH),)))
        prober.client.set_intervals({"web": ProbeInterval.FAST})
        await prober.until(lambda: len(prober.results) >= 3, "it is probed at the fast interval")

    with backends.server(backends.slow) as port:
        with_prober(tmp_path, scenario)


def test_a_restarted_balancer_gets_its_assignment_and_the_old_connection_is_closed(tmp_path: Path) -> None:
    async def scenario(prober: ProberWorker) -> None:
        prober.client.assign(Assignment((web(port),)))
        await prober.until(lambda: bool(prober.results), "the first balancer hears")
        prober.process.kill()
        before = len(prober.reports)
        prober.process.start()
        await prober.until(lambda: any(report.results for report in prober.reports[before:]), "so it does again")

    with backends.server(backends.slow) as port:
        with_prober(tmp_path, scenario)


def test_invalid_orders_end_the_connection_and_not_the_prober(tmp_path: Path) -> None:
    async def scenario(prober: ProberWorker) -> None:
        path = prober.paths.socket("probes")
        await prober.until(path.exists, "the socket exists")
        for nonsense in (b"\xff\xff\xff\xff", b"\0\0\0\x03abc", frame(prober.reports[0]) if prober.reports else b"\0"):
            reader, writer = await asyncio.open_unix_connection(str(path))
            # The connection ends with some of the nonsense still unread, or before the end of what is written.
            with contextlib.suppress(ConnectionError):
                writer.write(nonsense)
                writer.write_eof()
                while await reader.read(65_536):
                    pass
            writer.close()
        prober.client.assign(Assignment((web(port),)))
        await prober.until(lambda: bool(prober.results), "it still takes orders")
        assert prober.process.alive

    with backends.server(backends.slow) as port:
        with_prober(tmp_path, scenario)


def test_without_a_reader_the_newest_result_of_each_target_waits(tmp_path: Path) -> None:
    asked: list[float] = []

    def manners(peer: socket.socket) -> None:
        asked.append(time.monotonic())
        backends.slow(peer)

    async def scenario(prober: ProberWorker) -> None:
        prober.client.assign(undecided(web(port, interval=Duration(milliseconds=50))))
        await prober.until(lambda: bool(prober.results), "it begins")
        await prober.disconnect()
        known, probed = len(prober.results), len(asked)
        await prober.until(lambda: len(asked) > probed + 10, "probing continues")
        prober.connect()
        await prober.until(lambda: len(prober.results) > known, "its results arrive again")
        before, after = prober.results[known - 1 : known + 1]
        assert after.started - before.started > 5 * Duration(milliseconds=50)

    with backends.server(manners) as port:
        with_prober(tmp_path, scenario)


def test_a_prober_that_does_not_keep_up_says_so_until_it_does() -> None:
    overload = Overload()
    for late, sentence in (
        (1, ""),
        (50, "overloaded: 50% of the probes are late, and their failures do not count"),
        (0, ""),
    ):
        overload.count(100, late)
        for _ in range(20):
            overload.judge()
        assert overload.sentence == sentence


def hesitant_tls(authority: Authority) -> Callable[[socket.socket], None]:
    """A server that thinks for a while before it answers, and does not wait for clients that think for longer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.certificate("www.example.org"))

    def manners(peer: socket.socket) -> None:
        time.sleep(0.1)
        peer.settimeout(0.5)
        with context.wrap_socket(peer, server_side=True) as secured:
            secured.recv(65_536)
            secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    return manners


@fault(
    "B14",
    without="holdfast.balancer.probing.schedule:ProberStalls.late",
    returns=False,
    sees=(AssertionError, r"any\(result.late for result in after\)"),
)
def test_B14_a_prober_frozen_for_seconds_reports_no_failures(tmp_path: Path) -> None:
    """Half of the probes are under way when it is stopped, and their servers have given up when it goes on."""

    async def scenario(prober: ProberWorker) -> None:
        check = HealthCheck(type="https", verify=False, interval=seconds(0.4), timeout=seconds(2))
        targets = tuple(TargetSpec(f"web{index}", HERE, port, check) for index in range(20))
        prober.client.assign(undecided(*targets))
        await prober.until(lambda: len({result.target for result in prober.results}) == 20, "all are probed")
        before = len(prober.results)
        prober.process.pause()
        await asyncio.sleep(2.5)
        prober.process.resume()
        await prober.until(lambda: len({result.target for result in prober.results[before:]}) == 20, "all again")
        after = prober.results[before:]
        assert any(result.late for result in after)
        assert [result for result in after if result.failed] == []

    with backends.server(hesitant_tls(Authority(tmp_path))) as port:
        with_prober(tmp_path, scenario)


def test_B14_it_probes_from_inside_a_namespace_and_follows_its_name(
    tmp_path: Path, namespaces: NamespaceNetwork
) -> None:
    """A namespace that was deleted and made again is another one: from the old one everything would look dead."""
    home = namespaces.namespace("home")
    name = home.system_name

    async def scenario(prober: ProberWorker) -> None:
        prober.client.assign(Assignment((web(8099, type="http"),), namespace=name))
        await prober.until(lambda: any(result.passed for result in prober.results), "it gets an answer in there")
        run([tool("ip"), "netns", "delete", name])
        await prober.until(lambda: name in prober.reports[-1].trouble, "it says that the namespace is gone")
        await prober.until(lambda: name in prober.state, "the board tells, too")
        assert prober.reports[-1].targets == 0
        run([tool("ip"), "netns", "add", name])
        home.run("ip", "link", "set", "lo", "up")
        second = home.start(*serve)
        known = len(prober.results)
        await prober.until(lambda: any(result.passed for result in prober.results[known:]), "it has moved")
        assert prober.reports[-1].trouble == ""
        second.stop()

    serve = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "8099")
    first = home.start(*serve)
    try:
        with_prober(tmp_path, scenario)
    finally:
        first.stop()


def test_a_missing_namespace_is_reported_as_trouble_and_no_backend_is_down(tmp_path: Path) -> None:
    async def scenario(prober: ProberWorker) -> None:
        prober.client.assign(Assignment((web(1, type="tcp"),), namespace="nowhere"))
        await prober.until(lambda: bool(prober.reports) and bool(prober.reports[-1].trouble), "it says so")
        assert prober.reports[-1].trouble == (
            "network namespace nowhere is unreachable: No such file or directory; ip netns lists the existing ones"
        )
        assert prober.results == []

    with_prober(tmp_path, scenario)
