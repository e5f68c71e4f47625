"""Bindings of endpoints to hosts: what is a change, which host has which endpoint, and their names."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointStatusName
from holdfast.server.status.rules.bindings import Bindings
from holdfast.server.status.rules.endpoints import ALIVE, EndpointRules

HERE = Region("ams")


def wanted(workload: str, on: str = "r1", region: Region = HERE) -> bytes:
    return ENDPOINT.key(region, EndpointName(on, "holdfast", workload, "eth0"))


def test_what_is_known_already_is_no_news() -> None:
    bindings = Bindings(HERE)
    status = bindings.status_key(wanted("w1"))
    assert bindings.follow(wanted("w1"), bound=False) is None
    assert bindings.follow(wanted("w1"), bound=True) == status
    assert bindings.follow(wanted("w1"), bound=True) is None
    assert bindings.follow(wanted("w1"), bound=False) == status
    assert bindings.endpoints == {}
    assert bindings.per_agent() == {}


def test_endpoints_stand_with_the_agent_of_their_host_until_they_move() -> None:
    bindings = Bindings(HERE)
    bindings.add([wanted("w1"), wanted("w2"), wanted("w%3", on="r-2")])
    keys = [bindings.status_key(wanted(name)) for name in ("w1", "w2")]
    agent = bindings.agent(keys[0] or b"")
    assert sorted(bindings.endpoints_of(agent)) == keys
    assert sorted(bindings.per_agent().values()) == [1, 2]
    bindings.follow(wanted("w1", on="r-2"), bound=True)
    bindings.follow(wanted("w1"), bound=False)
    assert list(bindings.endpoints_of(agent)) == keys[1:]
    assert sorted(bindings.per_agent().values()) == [1, 2]


def test_an_agent_whose_last_endpoint_went_does_not_count_as_one_that_reports_on_any() -> None:
    subject = EndpointRules(HERE)
    subject.bindings.add([wanted("w1"), wanted("w2", on="r2")])
    subject.reports = dict.fromkeys(subject.bindings.per_agent(), ALIVE)
    assert subject.reporting() == 2
    subject.bindings.follow(wanted("w2", on="r2"), bound=False)
    assert subject.reporting() == 1


ODD = st.sampled_from(
    [
        wanted("w1"),
        wanted("w-1"),
        wanted("w--1", on="r-2"),
        wanted("w.1_x"),
        wanted("é%", on="r-2"),
        wanted("w1", region=Region("fra")),
        ENDPOINT.key(HERE, EndpointName("r1", "openstack", "w1", "eth0")),
        *(
            ENDPOINT.prefix(HERE) + rest
            for rest in (
                *(b"", b"\0", b"r1", b"r1-k8s-w1-eth0", b"a-holdfast-b", b"a-b-c-d-e", b"r1-holdfast--w1"),
                *(b"r1-holdfast-w1-", b"-holdfast-w1-e"),
                *(b"r1-holdfast\nb", b"c\n-holdfast-d-e", b"r1-holdfast-w1-e\nr2-holdfast-w2-e"),
            )
        ),
    ]
)


@given(st.lists(ODD))
@example([ENDPOINT.prefix(HERE) + b"a-holdfast-b", ENDPOINT.prefix(HERE) + b"c-x-holdfast-d-e"])
def test_a_page_of_names_is_read_as_each_of_them_alone(keys: list[bytes]) -> None:
    page, alone = Bindings(HERE), Bindings(HERE)
    page.add(keys)
    for key in keys:
        alone.add([key])
    assert page.endpoints == alone.endpoints
    assert page.per_agent() == alone.per_agent()
    expected = {_named(key) for key in keys} - {None}
    assert set(page.endpoints) == expected


def _named(key: bytes) -> bytes | None:
    name = ENDPOINT.parse(key, HERE)
    return None if isinstance(name, Bad) else ENDPOINT_STATUS.key(HERE, EndpointStatusName.of(HERE, name))


def test_endpoints_of_other_regions_are_passed_over() -> None:
    bindings = Bindings(HERE)
    bindings.add([wanted("w1", region=Region("fra")), wanted("w2", region=Region())])
    assert bindings.follow(wanted("w3", region=Region("fra")), bound=True) is None
    assert bindings.endpoints == {}


def test_an_endpoint_is_called_the_same_while_it_is_bound_and_after() -> None:
    for workload in ("w1", "w-1", "wé1"):
        subject = EndpointRules(HERE)
        key = subject.bindings.follow(wanted(workload), bound=True)
        assert key is not None
        bound = subject.show(key)
        subject.bindings.follow(wanted(workload), bound=False)
        assert bound == subject.show(key) == f"endpoint {EndpointName('r1', 'holdfast', workload, 'eth0')}"
