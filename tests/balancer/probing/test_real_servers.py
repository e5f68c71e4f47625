"""Each check type against real servers: working ones, and broken ones of every known kind."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.balancer.probing.messages import ProbeCode, TargetSpec
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.time import Duration, seconds
from holdfast.testing.fault import fault
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.netns import NamespaceNetwork
from holdfast.testing.real.processes import reserved_ports
from tests.balancer.probing import backends
from tests.balancer.probing.backends import HERE, Authority
from tests.balancer.probing.harness import PATIENT, manual_prober, probe

Ports = tuple[int, int, int]
IMPATIENT = seconds(1)
TENTH = seconds(0.1)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backends")


@pytest.fixture(scope="module")
def authority(home: Path) -> Authority:
    return Authority(home)


@pytest.fixture(scope="module")
def nginx(home: Path, authority: Authority) -> Iterator[Ports]:
    with or_skip(backends.nginx(home, authority)) as ports:
        yield ports


def test_tcp_an_open_port_passes(nginx: Ports) -> None:
    result = probe(HERE, nginx[0], type="tcp")
    assert result.passed
    assert result.code is ProbeCode.L4OK


def test_tcp_over_ipv6(nginx: Ports) -> None:
    assert probe("::1", nginx[0], type="tcp").code is ProbeCode.L4OK


def test_tcp_a_closed_port_is_refused() -> None:
    with reserved_ports(1) as (nobody,):
        result = probe(HERE, nobody, type="tcp")
    assert result.failed
    assert result.code is ProbeCode.L4CON
    assert result.detail == "Connection refused"


def test_tcp_a_full_queue_times_out() -> None:
    with backends.black_hole() as port:
        result = probe(HERE, port, type="tcp", timeout=IMPATIENT)
    assert result.code is ProbeCode.L4TOUT
    assert result.latency >= IMPATIENT


def test_tcp_the_application_never_sees_the_connection() -> None:
    """Only a prober that is held up for longer than the kernel delays its acknowledgement (40 ms) is noticed: of twenty
    probes most are not."""
    bothered = 0
    with socket.create_server((HERE, 0)) as listening:
        listening.setblocking(False)
        for _ in range(20):
            assert probe(HERE, listening.getsockname()[1], type="tcp").passed
            with contextlib.suppress(BlockingIOError):
                listening.accept()[0].close()
                bothered += 1
    assert bothered <= 10


def test_tcp_a_socket_that_connects_to_itself_fails(namespaces: NamespaceNetwork) -> None:
    port = "40000"
    home = namespaces.namespace("self")
    home.run("sysctl", "-qw", f"net.ipv4.ip_local_port_range={port} {port}")
    script = f"""
from tests.balancer.probing.harness import PATIENT, manual_prober, probe
print(probe("127.0.0.1", {port}, type="tcp").code.value)
"""
    assert home.run(*_python(script)).strip() == "L4CON"


def test_without_a_route_the_prober_alone_cannot_tell_whose_fault_it_is(namespaces: NamespaceNetwork) -> None:
    """A route that says so is none."""
    island = namespaces.namespace("island")
    types = enumerate(("unreachable", "prohibit", "blackhole"), 1)
    island.batch(
        [f"route add {kind} {prefix}" for n, kind in types for prefix in (f"10.9.{n}.0/24", f"fd00:9:{n}::/64")]
    )
    script = """
from tests.balancer.probing.harness import PATIENT, manual_prober, probe
four, six = ([template.format(n) for n in range(4)] for template in ("10.9.{}.1", "fd00:9:{}::1"))
for type, more in (("tcp", {}), ("icmp", {}), ("udp", {"send": "?"})):
    for address in four + six:
        result = probe(address, 80, type=type, **more)
        print(type, address, result.code.value, result.passed, result.failed)
"""
    told = island.run(*_python(script)).strip().split("\n")
    assert len(told) == 3 * 8
    assert [line for line in told if not line.endswith(" NOROUTE False False")] == []


def test_icmp_an_error_about_another_target_does_not_count(namespaces: NamespaceNetwork) -> None:
    """All targets of a family share a socket, which reports an error to whoever uses it next."""
    here, router = namespaces.namespace("asker"), namespaces.namespace("gate")
    namespaces.cable(here, router, "10.9.4.1/24", "10.9.4.2/24")
    router.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.icmp_ratelimit=0")
    here.run("sysctl", "-qw", "net.ipv4.ping_group_range=0 0")
    here.batch(["route add 192.0.2.0/24 via 10.9.4.2"])
    script = """
import select
from holdfast.balancer.probing.checks import Carrier
from holdfast.balancer.probing.icmp_transport import IcmpTransport
from holdfast.balancer.probing.messages import ProbeInterval, TargetSpec
from holdfast.balancer.probing.probe import Probe, ProbeTarget
from holdfast.config.sections.healthcheck import HealthCheck
epoll, check = select.epoll(), HealthCheck(type="icmp")
transport = IcmpTransport(epoll, lambda probe, verdict: print(probe.target.id, verdict.code.value))
for address in ("192.0.2.1", "10.9.4.2"):
    spec = TargetSpec(address, address, 0, check)
    transport.launch(Probe(ProbeTarget(spec, ProbeInterval.NORMAL, dict.fromkeys(Carrier, transport)), 0))
    events = epoll.poll(20)  # the answer has arrived, and is not read before the next request is sent
for fd, event in events:
    transport.handle(fd, event)
"""
    assert here.run(*_python(script)).split("\n")[:2] == ["192.0.2.1 L3UNR", "10.9.4.2 L3OK"]


def test_an_unused_address_fails(namespaces: NamespaceNetwork) -> None:
    here, there = namespaces.namespace("here"), namespaces.namespace("there")
    namespaces.cable(here, there, "10.9.0.1/24", "10.9.0.2/24")
    script = """
from holdfast.model.base.time import seconds
from tests.balancer.probing.harness import PATIENT, manual_prober, probe
for type in ("tcp", "icmp"):
    print(probe("10.9.0.77", 80, type=type, timeout=seconds(0.5)).passed)
    print(probe("10.9.0.2", 80, type=type).code.value)
"""
    assert here.run(*_python(script)).split() == ["False", "L4CON", "False", "L3OK"]


def test_the_source_address_is_used() -> None:
    seen: list[str] = []

    def remember(peer: socket.socket) -> None:
        seen.append(peer.getpeername()[0])
        backends.saying(b"HTTP/1.1 200 OK\r\n\r\n")(peer)

    with backends.server(remember) as port:
        assert probe(HERE, port, type="http", source="127.0.0.9").passed
    assert seen == ["127.0.0.9"]


def test_a_source_address_that_we_do_not_have_is_our_fault() -> None:
    result = probe(HERE, 80, type="tcp", source="192.0.2.200")
    assert result.code is ProbeCode.SOCKERR
    assert not result.failed


@pytest.mark.parametrize("address", [HERE, "::1", "127.0.0.77"])
def test_icmp_a_reply_passes(address: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("raw ICMP needs root here")
    assert probe(address, 0, type="icmp").code is ProbeCode.L3OK


def test_icmp_an_error_of_a_router_is_reported(namespaces: NamespaceNetwork) -> None:
    here, router = namespaces.namespace("here"), namespaces.namespace("router")
    namespaces.cable(here, router, "10.9.0.1/24", "10.9.0.2/24")
    here.run("ip", "route", "add", "default", "via", "10.9.0.2")
    router.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.icmp_ratelimit=0")
    router.run("ip", "route", "add", "unreachable", "192.0.2.0/24")
    script = """
from tests.balancer.probing.harness import PATIENT, manual_prober, probe
result = probe("192.0.2.1", 0, type="icmp")
print(result.code.value, result.detail)
"""
    raw = here.run(*_python(script))
    here.run("sysctl", "-qw", "net.ipv4.ping_group_range=0 100")
    ping_socket = here.run(*_python(script))
    assert raw.strip() == "L3UNR a router reported: unreachable (type 3, code 1)"
    assert ping_socket.strip() == "L3UNR a router reported: unreachable"


@pytest.mark.parametrize("groups", ["1 0", "0 100"])
@pytest.mark.parametrize("address", [HERE, "::1"])
def test_icmp_over_raw_and_over_ping_sockets(namespaces: NamespaceNetwork, groups: str, address: str) -> None:
    home = namespaces.namespace("home")
    home.run("sysctl", "-qw", f"net.ipv4.ping_group_range={groups}")
    script = f"""
from tests.balancer.probing.harness import PATIENT, manual_prober, probe
print(probe({address!r}, 0, type="icmp").code.value)
"""
    assert home.run(*_python(script)).strip() == "L3OK"


def test_icmp_that_is_not_allowed_says_what_would_allow_it(namespaces: NamespaceNetwork) -> None:
    home = namespaces.namespace("home")
    script = """
import os
from tests.balancer.probing.harness import PATIENT, manual_prober, probe
os.setgid(65534)
os.setuid(65534)
result = probe("127.0.0.1", 0, type="icmp")
print(result.code.value, result.failed, result.detail)
"""
    said = home.run(*_python(script)).strip()
    assert said == (
        "SOCKERR False this process may not send ICMP: give it CAP_NET_RAW, "
        "or add its group to net.ipv4.ping_group_range"
    )


def test_http_a_good_answer_passes(nginx: Ports) -> None:
    result = probe(HERE, nginx[0], type="http", path="/health", body=r"all is well\s*$", backend_header="X-Backend")
    assert (result.code, result.detail, result.answered_by) == (ProbeCode.L7OK, "200", "web-1")


def test_http_over_ipv6(nginx: Ports) -> None:
    assert probe("::1", nginx[0], type="http", path="/health").code is ProbeCode.L7OK


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/missing", "404 Not Found, expected 200–299"),
        ("/broken", "503 Service Temporarily Unavailable, expected 200–299"),
    ],
)
def test_http_a_bad_status_fails(nginx: Ports, path: str, detail: str) -> None:
    result = probe(HERE, nginx[0], type="http", path=path)
    assert (result.code, result.detail) == (ProbeCode.L7STS, detail)


def any_status(*_: object) -> bool:
    """B20 as it was: whatever has a status counts."""
    return True


@fault(
    "B20",
    without="holdfast.balancer.probing.checks.http:Expectation.accepts",
    by=f"{__name__}:any_status",
    sees=(AssertionError, "surprise.code is ProbeCode.L7STS"),
)
def test_B20_a_redirect_passes_only_where_it_is_expected(nginx: Ports) -> None:
    surprise = probe(HERE, nginx[0], type="http", path="/moved")
    assert surprise.code is ProbeCode.L7STS
    assert surprise.detail.startswith("302 Moved Temporarily to http")
    assert probe(HERE, nginx[0], type="http", path="/moved", status=("302",)).passed


def test_http_to_a_tls_port_fails(nginx: Ports) -> None:
    assert probe(HERE, nginx[1], type="http").code is ProbeCode.L7STS


@pytest.mark.parametrize(
    ("manners", "expected"),
    [
        (backends.flood, ProbeCode.L7RSP),
        (backends.saying(b"SSH-2.0-OpenSSH_9.2\r\n"), ProbeCode.L7RSP),
        (backends.saying(b""), ProbeCode.L7RSP),
        (backends.saying(b"HTTP/1.1 200 OK\r\nX: "), ProbeCode.L7RSP),
        (backends.saying(os.urandom(100_000)), ProbeCode.L7RSP),
        (backends.slow, ProbeCode.L7OK),
        (backends.body_flood, ProbeCode.L7OK),
    ],
)
def test_http_broken_servers(manners: backends.Manners, expected: ProbeCode) -> None:
    with backends.server(manners) as port:
        assert probe(HERE, port, type="http").code is expected


def test_http_a_flood_is_read_only_up_to_the_limit() -> None:
    with backends.server(backends.body_flood) as port:
        result = probe(HERE, port, type="http", body="OK")
    assert result.code is ProbeCode.L7RSP
    assert result.detail == "nothing in the body's first 65,536 bytes matches"


@pytest.mark.parametrize("manners", [backends.mute, backends.trickle])
@pytest.mark.parametrize(("kind", "expected"), [("http", ProbeCode.L7TOUT), ("https", ProbeCode.L6TOUT)])
def test_an_unfinished_answer_times_out(manners: backends.Manners, kind: str, expected: ProbeCode) -> None:
    timeout = IMPATIENT
    if (manners, kind) == (backends.trickle, "https"):
        expected, timeout = ProbeCode.L6RSP, PATIENT  # what trickles in is no TLS
    with backends.server(manners) as port:
        result = probe(HERE, port, type=kind, timeout=timeout)
    assert result.code is expected
    assert not result.passed


def test_https_with_the_right_name_passes(nginx: Ports, authority: Authority) -> None:
    result = probe(
        HERE, nginx[1], type="https", path="/health", host="www.example.org", ca_file=str(authority.file), body="well"
    )
    assert (result.code, result.detail) == (ProbeCode.L7OK, "200")


def only_the_address(target: TargetSpec) -> str:
    """B20 as it was: the host is asked for in HTTP, and nobody in TLS."""
    return target.address


@fault(
    "B20",
    without="holdfast.balancer.probing.checks.https:name_of",
    by=f"{__name__}:only_the_address",
    sees=(AssertionError, r"\(result.code, result.detail\) == \(ProbeCode.L7OK"),
)
def test_B20_the_name_is_asked_for_in_the_handshake(tmp_path: Path) -> None:
    """The server has two certificates, and shows that of www.example.org only to those who ask for it."""
    authority = Authority(tmp_path)
    chain, key = authority.certificate("www.example.org", file="asked")
    second = ("-servername", "www.example.org", "-cert2", str(chain), "-key2", str(key))
    with or_skip(backends.s_server(tmp_path, *authority.certificate("default.example.org"), *second)) as port:
        result = probe(HERE, port, type="https", host="www.example.org:8443", ca_file=str(authority.file))
    assert (result.code, result.detail) == (ProbeCode.L7OK, "200")


def test_https_the_sni_goes_before_the_host(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with or_skip(backends.s_server(tmp_path, *authority.certificate("other.example.org"))) as port:
        asked = {"type": "https", "host": "www.example.org", "ca_file": str(authority.file)}
        assert probe(HERE, port, sni="other.example.org", **asked).code is ProbeCode.L7OK
        assert probe(HERE, port, **asked).code is ProbeCode.L6RSP


def test_https_to_a_server_without_tls_fails_in_the_handshake(nginx: Ports) -> None:
    result = probe(HERE, nginx[0], type="https", verify=False)
    assert result.code is ProbeCode.L6RSP
    assert "handshake" in result.detail


@pytest.mark.parametrize(
    ("name", "expired", "by_stranger", "words"),
    [
        ("other.example.org", False, False, "not valid for 'www.example.org'"),
        ("www.example.org", True, False, "expired"),
        ("www.example.org", False, True, "unable to get local issuer certificate"),
    ],
)
def test_https_a_bad_certificate_is_refused_and_accepted_without_verification(
    tmp_path: Path, name: str, expired: bool, by_stranger: bool, words: str
) -> None:
    authority = Authority(tmp_path)
    pair = authority.certificate(name, expired=expired, by_stranger=by_stranger)
    with or_skip(backends.s_server(tmp_path, *pair)) as port:
        asked = {"type": "https", "host": "www.example.org", "ca_file": str(authority.file)}
        refused = probe(HERE, port, **asked)
        accepted = probe(HERE, port, verify=False, **asked)
    assert refused.code is ProbeCode.L6RSP
    assert words in refused.detail
    assert "www.example.org" in refused.detail
    assert accepted.code is ProbeCode.L7OK


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_https_supports_both_versions_of_tls(tmp_path: Path, version: str) -> None:
    authority = Authority(tmp_path)
    with or_skip(backends.s_server(tmp_path, *authority.certificate("www.example.org"), version)) as port:
        assert probe(HERE, port, type="https", host="www.example.org", ca_file=str(authority.file)).passed


def test_https_new_authorities_count_from_the_next_probe_on(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    authority, trusted = Authority(tmp_path), tmp_path / "trusted.pem"
    trusted.write_bytes(Authority(tmp_path / "old").file.read_bytes())
    check = HealthCheck(type="https", host="www.example.org", ca_file=str(trusted), timeout=PATIENT, interval=TENTH)
    with (
        or_skip(backends.s_server(tmp_path, *authority.certificate("www.example.org"))) as port,
        manual_prober() as prober,
    ):
        prober.assign(TargetSpec("web", HERE, port, check))
        assert prober.collect(1)[0].code is ProbeCode.L6RSP
        trusted.with_suffix(".new").write_bytes(authority.file.read_bytes())
        trusted.with_suffix(".new").replace(trusted)
        prober.until(lambda: prober.results[-1].passed, "the new authority is trusted")
        trusted.write_text("not a certificate")
        assert prober.collect(3)[-1].passed


def test_https_an_address_in_the_certificate_is_enough_without_a_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with or_skip(backends.s_server(tmp_path, *authority.certificate(HERE))) as port:
        assert probe(HERE, port, type="https", ca_file=str(authority.file)).passed


def test_http_head_is_asked_where_it_is_configured(nginx: Ports) -> None:
    asked = {"type": "http", "path": "/head-only"}
    assert probe(HERE, nginx[0], method="HEAD", **asked).code is ProbeCode.L7OK
    assert probe(HERE, nginx[0], **asked).detail == "403 Forbidden, expected 200–299"


def test_http_headers_reach_the_server(nginx: Ports) -> None:
    asked = {"type": "http", "path": "/for-probes"}
    assert probe(HERE, nginx[0], headers=("X-Probe: holdfast",), **asked).code is ProbeCode.L7OK
    assert probe(HERE, nginx[0], **asked).code is ProbeCode.L7STS


def test_http_a_header_in_a_file_is_sent_and_read_again_when_it_changes(nginx: Ports, tmp_path: Path) -> None:
    token = secret(tmp_path / "token", "Bearer s3same\n")
    files = (f"Authorization: {token}",)
    check = HealthCheck(type="http", path="/with-token", header_files=files, timeout=PATIENT, interval=TENTH)
    with manual_prober() as prober:
        prober.assign(TargetSpec("web", HERE, nginx[0], check))
        assert prober.collect(1)[0].detail == "200"
        secret(token, "Bearer renewed")
        prober.until(lambda: prober.results[-1].detail == "202", "the new token is sent")
        token.write_text("two\nlines")
        assert prober.collect(3)[-1].detail == "202", "a broken file leaves the last good one in use"


def test_https_a_client_certificate_is_presented(nginx: Ports, authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.client_certificate(tmp_path / "mine")
    asked = {"type": "https", "path": "/health", "host": "www.example.org", "ca_file": str(authority.file)}
    without = probe(HERE, nginx[2], **asked)
    assert (without.code, without.detail) == (ProbeCode.L7STS, "400 Bad Request, expected 200–299")
    result = probe(HERE, nginx[2], cert_file=str(cert), key_file=str(key), **asked)
    assert (result.code, result.detail) == (ProbeCode.L7OK, "200")


def test_https_authorities_certificate_and_key_may_be_credentials(
    nginx: Ports, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = authority.client_certificate(tmp_path / "mine")
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    for name, file in {"ca": authority.file, "cert": cert, "key": key}.items():
        (credentials / name).write_bytes(file.read_bytes())
        (credentials / name).chmod(0o600)
    asked = {"type": "https", "path": "/health", "host": "www.example.org", "ca_file": "credential:ca"}
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    result = probe(HERE, nginx[2], cert_file="credential:cert", key_file="credential:key", **asked)
    assert (result.code, result.detail) == (ProbeCode.L7OK, "200")


def test_https_a_client_certificate_of_a_stranger_fails(nginx: Ports, authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.client_certificate(tmp_path / "theirs", by_stranger=True)
    asked = {"type": "https", "path": "/health", "host": "www.example.org", "ca_file": str(authority.file)}
    assert probe(HERE, nginx[2], cert_file=str(cert), key_file=str(key), **asked).code is ProbeCode.L7STS


def test_https_a_renewed_client_certificate_is_presented_once_certificate_and_key_fit(
    nginx: Ports, authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.client_certificate(tmp_path / "mine")
    new_cert, new_key = authority.client_certificate(tmp_path / "renewed")
    check = HealthCheck(
        type="https",
        path="/health",
        host="www.example.org",
        ca_file=str(authority.file),
        cert_file=str(cert),
        key_file=str(key),
        timeout=PATIENT,
        interval=TENTH,
    )
    with manual_prober() as prober:
        prober.assign(TargetSpec("web", HERE, nginx[2], check, "X-Backend"))
        (first,) = prober.collect(1)
        new_cert.replace(cert)
        assert {one.answered_by for one in prober.collect(3)} == {first.answered_by}, "the key is not there yet"
        new_key.replace(key)
        prober.until(lambda: prober.results[-1].answered_by != first.answered_by, "the new certificate is presented")
        assert all(one.passed for one in prober.results)


def test_https_a_certificate_that_was_missing_is_used_once_it_is_there(
    nginx: Ports, authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.client_certificate(tmp_path / "mine")
    late = tmp_path / "late.pem"
    check = HealthCheck(
        type="https",
        path="/health",
        host="www.example.org",
        ca_file=str(authority.file),
        cert_file=str(late),
        key_file=str(key),
        timeout=PATIENT,
        interval=TENTH,
    )
    with manual_prober() as prober:
        prober.assign(TargetSpec("web", HERE, nginx[2], check))
        (first,) = prober.collect(1)
        assert first.code is ProbeCode.SOCKERR
        assert f"cert-file {late} or key-file {key} cannot be used: No such file or directory" in first.detail
        cert.replace(late)
        prober.until(lambda: prober.results[-1].passed, "the certificate is presented")


def secret(path: Path, text: str) -> Path:
    """Put a file that only its owner can read in the place of what was there."""
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(text)
    return new.replace(path)


def test_files_that_other_users_can_read_are_refused(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.client_certificate(tmp_path / "open")
    key.chmod(0o644)
    result = probe(HERE, 443, type="https", cert_file=str(cert), key_file=str(key))
    assert result.code is ProbeCode.SOCKERR
    assert f"{key} is accessible to every user of this machine: run chmod o= {key}" in result.detail


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"type": "https", "ca_file": "/nowhere/ca.pem"}, "ca-file /nowhere/ca.pem cannot be used"),
        ({"type": "http", "header_files": ("A: /nowhere/token",)}, "header-files: /nowhere/token cannot be read"),
        ({"type": "http", "body": "("}, "is not a regular expression"),
        ({"type": "smtp"}, "there is no check type 'smtp'"),
        ({"type": "tcp", "source": "::1"}, "do not match"),
    ],
)
def test_a_target_that_cannot_be_checked_says_why_and_is_not_down(settings: dict[str, Any], sentence: str) -> None:
    result = probe(HERE, 80, **settings)
    assert result.code is ProbeCode.SOCKERR
    assert not result.failed
    assert sentence in result.detail


def test_a_source_that_is_not_an_address_is_refused_before_it_reaches_the_prober() -> None:
    with pytest.raises(ValueError, match="source is 'somewhere', which is not an IP address"):
        HealthCheck(type="tcp", source="somewhere")


def test_a_name_is_never_looked_up_while_probing() -> None:
    result = probe("localhost", 80, type="tcp")
    assert result.detail == "backend: address 'localhost' is not an IP address"


def test_latency_is_the_probes_own() -> None:
    with backends.server(backends.slow) as port:
        assert probe(HERE, port, type="http").latency >= Duration(milliseconds=30)


def _python(script: str) -> list[str]:
    return [sys.executable, "-c", script]
