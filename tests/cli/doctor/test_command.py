"""`holdfast doctor` and `holdfast store adopt` as an operator runs them, against real stores that are in trouble."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER
from holdfast.model.calico.host import HOST
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.runtime.caller import this_user
from holdfast.runtime.store_memory import StoreMemory
from holdfast.server.election.identity import IdentityCheck
from holdfast.store.api import NoSpace
from holdfast.store.identity import SeenStore, StoreVerdict, identity_key
from holdfast.store.transport.gateway import Connection
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.etcd import EtcdCluster, EtcdMember, etcd_cluster
from holdfast.testing.real.processes import reserved_ports, tool
from tests.store.certificates import CLIENT, SERVER, Authority
from tests.store.harness import opened
from tests.store.servers import (
    etcd_without_gateway,
    some_other_server,
    some_web_server,
    switch_authentication_on,
    tls_etcd,
)

REGION = Region()
OURS = SeenStore("kelp", 2, 1)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder that the commands look into."""
    folder = tmp_path / "state"
    folder.mkdir()
    monkeypatch.setenv("HOLDFAST_PATHS_STATE", str(folder))
    monkeypatch.setenv("SUDO_USER", "ada")  # proves nothing, and is not recorded
    return folder


@pytest.fixture
def member() -> Iterator[EtcdMember]:
    """An etcd of this test's own."""
    with or_skip(etcd_cluster(1)) as cluster:
        yield cluster.members[0]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def doctor(*endpoints: str, flags: Sequence[str] = ()) -> Result:
    return CliRunner().invoke(main, ["doctor", "--endpoints", ",".join(endpoints), *flags])


def adopt(endpoint: str, *flags: str) -> Result:
    return CliRunner().invoke(main, ["store", "adopt", "--endpoints", endpoint, "--reason", "restored it", *flags])


def complaints(result: Result) -> Sequence[str]:
    """Return the findings marked BAD; the doctor never answers with a traceback."""
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return [line for line in result.output.splitlines() if line.startswith("BAD")]


def put(endpoint: str, key: bytes, value: bytes) -> None:
    async def main() -> None:
        async with opened(Connection((endpoint,))) as store:
            await store.put(key, value)

    asyncio.run(main())


def fill(endpoint: str) -> None:
    for number in range(100):
        put(endpoint, b"%d" % number, b"x" * 300_000)


def login(authority: Authority, folder: Path, password: str = "", *, common_name: bool = False) -> Sequence[str]:
    """The flags of an operator with a client certificate, and with a password where there is one."""
    pair = authority.issue("client", [CLIENT], common_name=common_name)
    pair.key.chmod(0o600)
    flags = ["--cacert", str(authority.pem), "--cert", str(pair.cert), "--key", str(pair.key)]
    if not password:
        return flags
    secret = folder / "password"
    secret.touch(mode=0o600)
    secret.write_text(password)
    return [*flags, "--user", "root", "--password-file", str(secret)]


def etcdctl_login(authority: Authority) -> Sequence[str]:
    pair = authority.issue("operator", [CLIENT])
    return [f"--cacert={authority.pem}", f"--cert={pair.cert}", f"--key={pair.key}"]


# A store that cannot be asked: one sentence, exit code 2


def assert_one_sentence(result: Result, words: str) -> None:
    (complaint,) = complaints(result)
    assert words in complaint
    assert result.output.splitlines() == [complaint]
    assert result.exit_code == 3


def test_an_unreachable_endpoint(state: Path) -> None:
    with reserved_ports(1) as (port,):
        url = f"http://127.0.0.1:{port}"
        result = doctor(url)
    assert_one_sentence(result, f"{url} cannot be reached (connection refused); check that etcd listens there")


def test_a_certificate_of_another_ca(state: Path, authority: Authority) -> None:
    with tls_etcd(state, authority, authority.issue("server", [SERVER, CLIENT])) as etcd:
        result = doctor(etcd.url, flags=login(Authority(state, "other"), state))
    assert_one_sentence(result, "is not signed by the CA in store.ca_file")


def test_a_wrong_password(state: Path, authority: Authority) -> None:
    with tls_etcd(state, authority, authority.issue("server", [SERVER, CLIENT])) as etcd:
        switch_authentication_on(etcd.url, "right", *etcdctl_login(authority))
        wrong = doctor(etcd.url, flags=login(authority, state, "wrong"))
        right = doctor(etcd.url, flags=login(authority, state, "right"))
    assert_one_sentence(wrong, "refuses our password; check store.user and the content of store.password_file")
    assert (right.exit_code, complaints(right)) == (0, [])


def test_a_client_certificate_with_a_common_name_under_authentication(state: Path, authority: Authority) -> None:
    with tls_etcd(state, authority, authority.issue("server", [SERVER, CLIENT])) as etcd:
        switch_authentication_on(etcd.url, "right", *etcdctl_login(authority))
        result = doctor(etcd.url, flags=login(authority, state, "right", common_name=True))
    assert_one_sentence(result, "refuses client certificates with a Common Name while etcd's authentication is on")


def test_a_server_certificate_without_client_usage(state: Path, authority: Authority) -> None:
    with tls_etcd(state, authority, authority.issue("server", [SERVER])) as etcd:
        result = doctor(etcd.url, flags=login(authority, state))
    assert_one_sentence(result, "its server certificate needs the clientAuth usage too")


def test_a_gateway_that_is_switched_off(state: Path) -> None:
    with etcd_without_gateway(state) as url:
        result = doctor(url)
    assert_one_sentence(result, "with its JSON gateway switched off; start it without --enable-grpc-gateway=false")


@pytest.mark.parametrize("server", [some_web_server, some_other_server])
def test_a_port_that_another_server_has_taken(state: Path, server: type) -> None:
    with server() as url:
        result = doctor(url)
    assert_one_sentence(result, "another server has taken that port")


def test_a_password_file_that_is_not_there(state: Path) -> None:
    result = doctor("http://127.0.0.1:1", flags=["--user", "root", "--password-file", "/nowhere"])
    assert_one_sentence(result, "store.password_file: /nowhere cannot be read: No such file or directory")


# A store that answers, and in which something is wrong: every fault is a line, exit code 1


def test_a_new_store_is_only_a_note(state: Path, member: EtcdMember) -> None:
    result = doctor(member.url)
    assert (result.exit_code, complaints(result)) == (0, [])
    assert "note  identity   the store has no identity yet" in result.output


def test_a_foreign_fleet(state: Path, member: EtcdMember) -> None:
    put(member.url, identity_key(REGION), IDENTITY.encode(Identity("wrack", 1)))
    StoreMemory(state, "server").keep(OURS)
    result = doctor(member.url)
    (complaint,) = complaints(result)
    assert "this store belongs to fleet wrack, but we belong to fleet kelp" in complaint
    assert result.exit_code == 1


def test_a_foreign_fleet_to_the_balancer_on_this_machine(state: Path, member: EtcdMember) -> None:
    put(member.url, identity_key(REGION), IDENTITY.encode(Identity("wrack", 1)))
    StoreMemory(state, "balancer").keep(OURS)
    result = doctor(member.url)
    assert "we belong to fleet kelp" in complaints(result)[0]
    assert result.exit_code == 1


def test_an_etcd_that_is_out_of_space(state: Path) -> None:
    with or_skip(etcd_cluster(1, options=["--quota-backend-bytes=2000000"])) as cluster:
        with pytest.raises(NoSpace):
            fill(cluster.endpoints[0])
        result = doctor(*cluster.endpoints)
    (complaint,) = complaints(result)
    assert "etcd is out of space and accepts no writes" in complaint
    assert result.exit_code == 1


def test_keys_that_cannot_be_read_are_listed(state: Path, member: EtcdMember) -> None:
    put(member.url, HOST.key(REGION, "rock-1"), b"[]")
    put(member.url, HOST.prefix(REGION) + b"\x1b[2J/strange", b"{}")
    put(member.url, identity_key(REGION), IDENTITY.encode(Identity("kelp", 1)))
    result = doctor(member.url)
    strange, shape = complaints(result)
    assert HOST.key(REGION, "rock-1").decode() in shape
    assert "JSON of the wrong shape" in shape
    assert "\\x1b[2J/strange" in strange
    assert "\x1b" not in result.output
    assert result.exit_code == 1


def test_many_unreadable_keys_are_counted(state: Path, member: EtcdMember) -> None:
    for number in range(12):
        put(member.url, HOST.key(REGION, f"rock-{number}"), b"rubbish")
    assert "… and 2 more" in complaints(doctor(member.url))[-1]


def test_a_member_that_is_silent_while_others_answer(state: Path, three_etcds: EtcdCluster) -> None:
    dead = three_etcds.members[1]
    dead.kill()
    three_etcds.leader()
    result = doctor(*three_etcds.endpoints)
    (complaint,) = complaints(result)
    assert f"{dead.url} cannot be reached" in complaint
    assert result.exit_code == 1


def test_an_unreadable_record_of_the_store_identity(state: Path, member: EtcdMember) -> None:
    (state / "server.store.json").write_text("rubbish")
    (complaint,) = complaints(doctor(member.url))
    assert "server.store.json cannot be read" in complaint
    refused = adopt(member.url)
    assert refused.exit_code == 1
    assert refused.output.startswith("Error: ")
    assert "server.store.json cannot be read" in refused.output


# A store that was thrown back, and the operator who says that it is right


def look(endpoint: str, state: Path) -> StoreVerdict:
    """Judge the store as a server does, which records a good one."""

    async def main() -> StoreVerdict:
        async with opened(Connection((endpoint,))) as store:
            return (await IdentityCheck(store, REGION, StoreMemory(state, "server")).check(NEVER)).verdict

    return asyncio.run(main())


def live_for_a_while(endpoint: str, state: Path) -> None:
    put(endpoint, identity_key(REGION), IDENTITY.encode(Identity("kelp", 1)))
    for number in range(5):
        put(endpoint, b"/other/%d" % number, b"")
    assert look(endpoint, state) is StoreVerdict.OURS


def wipe(member: EtcdMember) -> None:
    member.kill()
    shutil.rmtree(member.home)
    member.start()
    member.wait_ready()


def etcdctl(*arguments: str) -> None:
    subprocess.run(
        [tool("etcdctl"), *arguments],
        env={**os.environ, "ETCDCTL_API": "3"},
        check=True,
        capture_output=True,
        timeout=30,
    )


def restore(member: EtcdMember, backup: Path) -> None:
    member.kill()
    shutil.rmtree(member.home)
    etcdctl(
        "snapshot",
        "restore",
        str(backup),
        f"--data-dir={member.home}",
        f"--name={member.name}",
        f"--initial-cluster={member.name}={member.peer_url}",
        f"--initial-advertise-peer-urls={member.peer_url}",
    )
    member.start()
    member.wait_ready()


def assert_adopted(member: EtcdMember, state: Path, epoch: int) -> None:
    """Thrown back, said so, adopted by the command that is named, and from then on ours to every server."""
    (complaint,) = complaints(doctor(member.url))
    assert "To release: holdfast store adopt --reason WHY" in complaint
    assert look(member.url, state) is StoreVerdict.RESTORED
    before = {path.name: path.read_bytes() for path in state.iterdir()}
    adopted = adopt(member.url)
    assert (adopted.exit_code, adopted.output) == (0, f"fleet kelp continues with epoch {epoch}: “restored it”\n")
    after = {path.name: path.read_bytes() for path in state.iterdir()}
    assert after == before, "the memory is the server's: a command run as root would take it away from it"
    well = doctor(member.url)
    assert complaints(well) == []
    assert f"epoch {epoch}, adopted by {this_user()}: “restored it”" in well.output
    assert look(member.url, state) is StoreVerdict.OURS
    again = adopt(member.url)
    assert again.exit_code == 1
    assert "nothing to adopt" in again.output


def test_a_wiped_store_is_adopted(state: Path, member: EtcdMember) -> None:
    live_for_a_while(member.url, state)
    wipe(member)
    assert_adopted(member, state, epoch=2)


def test_a_store_restored_from_a_backup_is_adopted(state: Path, member: EtcdMember, tmp_path: Path) -> None:
    live_for_a_while(member.url, state)
    etcdctl(f"--endpoints={member.url}", "snapshot", "save", str(tmp_path / "backup"))
    put(member.url, b"/other/late", b"")
    assert look(member.url, state) is StoreVerdict.OURS
    restore(member, tmp_path / "backup")
    assert_adopted(member, state, epoch=2)


def test_a_store_with_an_unreadable_identity_is_adopted(state: Path, member: EtcdMember) -> None:
    live_for_a_while(member.url, state)
    put(member.url, identity_key(REGION), b"rubbish")
    assert look(member.url, state) is StoreVerdict.RESTORED
    assert adopt(member.url).exit_code == 0
    assert look(member.url, state) is StoreVerdict.OURS


def test_a_foreign_store_is_not_adopted(state: Path, member: EtcdMember) -> None:
    put(member.url, identity_key(REGION), IDENTITY.encode(Identity("wrack", 9)))
    StoreMemory(state, "server").keep(OURS)
    refused = adopt(member.url)
    assert refused.exit_code == 1
    assert "nothing to adopt: this store belongs to fleet wrack" in refused.output


def test_a_machine_without_a_recorded_identity_adopts_nothing(state: Path, member: EtcdMember) -> None:
    refused = adopt(member.url)
    assert refused.exit_code == 1
    assert "run this on a server of the fleet" in refused.output


def test_adopting_needs_a_reason(state: Path) -> None:
    refused = CliRunner().invoke(main, ["store", "adopt"])
    assert refused.exit_code == 2
    assert "Missing option '--reason'" in refused.output


def test_findings_are_a_document_too(member: EtcdMember, state: Path) -> None:
    found = CliRunner().invoke(main, ["doctor", "--endpoints", member.url, "-o", "json"])
    document = json.loads(found.stdout)
    assert document["exit_code"] == found.exit_code == 0
    assert {"etcd", "access", "keys"} <= {one["subject"] for one in document["findings"]}
    assert {one["severity"] for one in document["findings"]} <= {"good", "note"}


def test_a_broken_configuration_is_a_finding_and_stops_no_diagnosis(member: EtcdMember, tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("store: [")
    found = doctor(member.url, flags=["--config", str(tmp_path / "broken.yaml")])
    assert found.exit_code == 1
    assert f"BAD   config     {tmp_path}/broken.yaml:1:9: is not YAML" in found.output
    assert "; the defaults are checked instead\n" in found.output
    assert "ok    etcd" in found.output
