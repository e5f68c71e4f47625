"""What `holdfast doctor` says of a VPP: its version, the rights on its API socket, and the source of its tunnels."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.doctor import Finding, Severity
from holdfast.cli.doctor.vpp import examine_vpp
from holdfast.config import ConfigFile, Loaded, resolve
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.testing.fakes.vpp import FakeVpp

_NOBODY = 65_534


def config(socket: Path, encapsulation: str = "gre", settings: str = "") -> BalancerSettings:
    text = f"""\
balancer:
  dataplane: {{kind: vpp, vpp: {{api-socket: {socket}{settings}}}}}
  backends: {{web: {{address: 10.0.0.1}}}}
  frontends:
    www: {{address: 192.0.2.1, port: 80, encapsulation: {encapsulation}, pools: [{{backends: {{web: }}}}]}}
"""
    loaded = resolve(ConfigFile("f", text.encode()), {})
    assert isinstance(loaded, Loaded), loaded
    return loaded.config.balancer


@contextlib.contextmanager
def answering(without: frozenset[str] = frozenset()) -> Iterator[FakeVpp]:
    """A VPP in a thread of its own, in a folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        vpp, started = FakeVpp(Path(folder) / "api.sock", without), threading.Event()
        loop = asyncio.new_event_loop()
        stopping = asyncio.Event()

        async def serve() -> None:
            async with vpp.running():
                started.set()
                await stopping.wait()

        thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
        thread.start()
        try:
            assert started.wait(60)
            yield vpp
        finally:
            loop.call_soon_threadsafe(stopping.set)
            thread.join()
            loop.close()


def found(settings: BalancerSettings) -> list[tuple[Severity, str]]:
    return [(one.severity, one.sentence) for one in examine_vpp(settings)]


def test_a_vpp_that_is_fit_is_good() -> None:
    with answering() as vpp:
        assert found(config(vpp.path, "l3dsr")) == [
            (Severity.GOOD, f"VPP answers on {vpp.path} and has the lb plugin"),
        ]


def test_a_vpp_without_lb_as_set_weight_is_refused_with_that_sentence() -> None:
    with answering(frozenset({"lb_as_set_weight"})) as vpp:
        ((severity, sentence),) = found(config(vpp.path))
    assert severity is Severity.WRONG
    assert sentence.endswith("its lb plugin has no lb_as_set_weight: VPP 26.10 or newer is needed")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_socket_that_this_user_may_not_use_names_its_group() -> None:
    with answering() as vpp:
        os.chown(vpp.path, 0, grp.getgrnam("daemon").gr_gid)
        vpp.path.chmod(0o660)
        os.seteuid(_NOBODY)
        try:
            ((severity, sentence),) = found(config(vpp.path))
        finally:
            os.seteuid(0)
    assert severity is Severity.WRONG
    assert sentence.endswith(f"this user may not use {vpp.path}: add it to the group daemon, and restart this process")


def test_a_socket_that_is_not_there_is_named(tmp_path: Path) -> None:
    ((severity, sentence),) = found(config(tmp_path / "api.sock"))
    assert severity is Severity.WRONG
    assert f"there is no socket {tmp_path / 'api.sock'}: is VPP running" in sentence


@pytest.mark.parametrize(("settings", "names"), [("", ["tunnel source"]), (", source-ipv4: 198.51.100.7", [])])
def test_tunnels_need_a_source_address(settings: str, names: list[str]) -> None:
    with answering() as vpp:
        wrong: list[Finding] = [
            one for one in examine_vpp(config(vpp.path, settings=settings)) if one.severity is Severity.WRONG
        ]
    assert [one.subject for one in wrong] == names
