"""Errors that an operator reads when the store cannot be used, from real servers configured that way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.control.identity import Identity
from holdfast.store.api import NoSpace, StoreAway, StoreError, StoreRefused, TooLarge
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.fenced.store import FencedStore
from holdfast.store.identity import SeenStore, StoreVerdict, classify_store, create_identity, read_identity
from holdfast.store.transport.gateway import Connection
from holdfast.testing.real.processes import reserved_ports
from tests.store.certificates import CLIENT, SERVER, Authority
from tests.store.harness import opened, until
from tests.store.servers import some_other_server, some_web_server, switch_authentication_on, tls_etcd

BOTH = (SERVER, CLIENT)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def authority(home: Path) -> Authority:
    return Authority(home)


@pytest.fixture
def tls(home: Path, authority: Authority) -> Iterator[str]:
    with tls_etcd(home, authority, authority.issue("server", BOTH)) as etcd:
        yield etcd.url


def complaint(connection: Connection) -> str:
    """The sentence that a first read of this store gives."""

    async def main() -> str:
        async with opened(connection) as store:
            try:
                entry = await store.get(b"key")
            except (StoreAway, StoreError) as error:
                return f"{type(error).__name__}: {error}"
            return f"no complaint: {entry}"

    return asyncio.run(main())


def client(url: str, authority: Authority, *, common_name: bool = False, **more: str) -> Connection:
    pair = authority.issue("client", [CLIENT], common_name=common_name)
    password = more.get("password")
    return Connection(
        (url,),
        ca=authority.pem,
        cert=pair.cert,
        key=pair.key,
        user=more.get("user", ""),
        password=(lambda: password) if password is not None else None,
    )


def etcdctl_login(authority: Authority) -> list[str]:
    pair = authority.issue("operator", [CLIENT])
    return [f"--cacert={authority.pem}", f"--cert={pair.cert}", f"--key={pair.key}"]


def test_an_unreachable_endpoint() -> None:
    with reserved_ports(1) as (port,):
        said = complaint(Connection((f"http://127.0.0.1:{port}",)))
    assert said.startswith("StoreAway")
    assert f"http://127.0.0.1:{port} cannot be reached (connection refused)" in said
    assert "check that etcd listens there" in said


def test_an_endpoint_that_never_answers() -> None:
    async def main() -> str:
        writers: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
        url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        async with opened(Connection((url,), deadline=Duration(milliseconds=300))) as store:
            with pytest.raises(StoreAway, match="does not answer in time") as caught:
                await store.put(b"a", b"")
        silent.close()
        for writer in writers:
            writer.transport.abort()
        assert caught.value.uncertain
        return str(caught.value)

    assert "firewall" in asyncio.run(main())


def test_a_certificate_of_another_ca(home: Path, tls: str) -> None:
    said = complaint(client(tls, Authority(home, "other")))
    assert said.startswith("StoreRefused")
    assert "not signed by the CA in store.ca_file" in said


def test_no_client_certificate_where_one_is_asked_for(tls: str, authority: Authority) -> None:
    said = complaint(Connection((tls,), ca=authority.pem))
    assert said.startswith("StoreRefused")
    assert "asks for a client certificate" in said


def test_a_client_certificate_that_the_server_does_not_trust(home: Path, tls: str, authority: Authority) -> None:
    pair = Authority(home, "other").issue("stranger", [CLIENT])
    said = complaint(Connection((tls,), ca=authority.pem, cert=pair.cert, key=pair.key))
    assert said.startswith("StoreRefused")
    assert "refuses our client certificate" in said


def test_a_certificate_file_that_is_none(home: Path) -> None:
    (home / "rubbish.pem").write_text("rubbish")
    with pytest.raises(StoreRefused, match=r"store.ca_file .*rubbish.pem is not a readable CA certificate"):
        EtcdStore(Connection(("https://127.0.0.1:1",), ca=home / "rubbish.pem"))


def test_the_right_certificates_are_no_complaint(tls: str, authority: Authority) -> None:
    assert complaint(client(tls, authority, common_name=True)) == "no complaint: None"


def test_a_wrong_password(tls: str, authority: Authority) -> None:
    switch_authentication_on(tls, "right", *etcdctl_login(authority))
    said = complaint(client(tls, authority, user="root", password="wrong"))
    assert said.startswith("StoreRefused")
    assert "refuses our password; check store.user and the content of store.password_file" in said
    assert complaint(client(tls, authority, user="root", password="right")) == "no complaint: None"


def test_no_user_where_one_is_asked_for(tls: str, authority: Authority) -> None:
    switch_authentication_on(tls, "right", *etcdctl_login(authority))
    said = complaint(client(tls, authority))
    assert said.startswith("StoreRefused")
    assert "has authentication on; set store.user and store.password_file" in said


def test_a_client_certificate_with_a_common_name_under_authentication(tls: str, authority: Authority) -> None:
    switch_authentication_on(tls, "right", *etcdctl_login(authority))
    said = complaint(client(tls, authority, common_name=True, user="root", password="right"))
    assert said.startswith("StoreRefused")
    assert "refuses client certificates with a Common Name while etcd's authentication is on" in said


def test_a_server_certificate_without_client_usage(home: Path, authority: Authority) -> None:
    with tls_etcd(home, authority, authority.issue("server", [SERVER])) as etcd:
        said = complaint(client(etcd.url, authority))
    assert said.startswith("StoreRefused")
    assert "its server certificate needs the clientAuth usage too" in said


def test_a_gateway_that_is_switched_off(home: Path) -> None:
    async def main() -> None:
        etcd = EmbeddedEtcd(home / "etcd", options=["--enable-grpc-gateway=false"])
        with pytest.raises(StoreError, match=r"is etcd 3.* with its JSON gateway switched off"):
            await etcd.start()

    asyncio.run(main())


@pytest.mark.parametrize("server", [some_web_server, some_other_server])
def test_a_port_that_another_server_has_taken(server: type) -> None:
    with server() as url:
        said = complaint(Connection((url,)))
    assert said.startswith("StoreRefused")
    assert f"{url} is not etcd" in said
    assert "another server has taken that port" in said


def test_tls_to_a_server_without_it(etcd: EmbeddedEtcd) -> None:
    said = complaint(Connection((etcd.endpoint.replace("http:", "https:"),)))
    assert "if it does not speak TLS, write http:// in store.endpoints" in said


def test_no_tls_to_a_server_that_wants_it(tls: str) -> None:
    said = complaint(Connection((tls.replace("https:", "http:"),)))
    assert "if it speaks TLS, write https:// in store.endpoints" in said


def test_a_foreign_fleet(etcd: EmbeddedEtcd) -> None:
    async def main() -> None:
        async with opened(etcd.connection()) as store:
            await store.put(b"leader", b"")
            leader = await store.get(b"leader")
            assert leader is not None
            region = Region("foreign")
            fenced = FencedStore(store, b"leader", leader.create_revision)
            await create_identity(fenced, region, Identity(fleet="theirs", epoch=1))
            judgement = classify_store(SeenStore("ours", 1, 1), await read_identity(store, region))
        assert judgement.verdict is StoreVerdict.FOREIGN
        assert "this store belongs to fleet theirs, but we belong to fleet ours" in judgement.sentence

    asyncio.run(main())


def test_an_etcd_that_is_out_of_space(home: Path) -> None:
    async def main() -> None:
        async with (
            EmbeddedEtcd(home / "etcd", options=["--quota-backend-bytes=2000000"]) as etcd,
            opened(etcd.connection()) as store,
        ):
            with pytest.raises(NoSpace, match="etcd is out of space, so nothing is written"):
                await fill(store)
            with pytest.raises(NoSpace):
                await store.grant(Duration(seconds=5))
            assert await store.alarms() == ["NOSPACE"]
            assert (await store.status())[0].alarms == ["NOSPACE"]

    asyncio.run(main())


async def fill(store: EtcdStore) -> None:
    for i in range(100):
        await store.put(b"%d" % i, b"x" * 300_000)


def test_a_value_that_is_too_large(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def main() -> None:
        async with opened(etcd.connection()) as store:
            with pytest.raises(TooLarge, match="above etcd's request limit"):
                await store.put(prefix, b"x" * 2_000_000)

    asyncio.run(main())


def test_a_token_that_the_server_has_forgotten_is_renewed(tls: str, authority: Authority) -> None:
    switch_authentication_on(tls, "right", *etcdctl_login(authority))

    async def main() -> None:
        async with opened(client(tls, authority, user="root", password="right")) as store:
            await store.put(b"a", b"1")
            watch = store.watch(b"")
            await anext(watch)
            for token in ("rubbish.1", "rubbish.2"):
                store._gateway.tokens._token = token
                await store.put(b"a", b"2")
            store._gateway.tokens._token = "rubbish.3"
            news = asyncio.ensure_future(anext(watch))
            await until(news.done)
            assert (await news).revision > 1

    asyncio.run(main())
