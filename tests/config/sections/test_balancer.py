"""The balancer section: sections by name, lists of sections, and conflicts between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.config import Config, ConfigFile, ConfigRejected, Loaded, dump, resolve, restore
from holdfast.config.loading.resolve import SETTINGS
from holdfast.config.output.reference import reference
from holdfast.config.output.show import as_json, as_table, as_yaml
from holdfast.config.schema.field import Field, fields
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.config.sections.frontend import TABLE_SIZES, Backend
from holdfast.config.sections.healthcheck import HealthCheck

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "balancer.yaml"

GOOD = """\
balancer:
  healthchecks:
    web: {type: http}
  backends:
    a: {address: 10.0.0.1, port: 80, healthcheck: web}
    b: {address: 10.0.0.2, port: 80, healthcheck: [web]}
  frontends:
    www:
      address: 192.0.2.1
      port: 80
      pools:
        - backends: {a: {}, b: {weight: 50}}
"""


def good(text: str) -> Loaded:
    result = resolve(ConfigFile("f", text.encode()), {})
    assert isinstance(result, Loaded), str(result)
    return result


def wrong(text: str) -> list[str]:
    result = resolve(ConfigFile("f", text.encode()), {})
    assert isinstance(result, ConfigRejected)
    return str(result).splitlines()


def changed(old: str, new: str) -> list[str]:
    assert old in GOOD
    return wrong(GOOD.replace(old, new))


def test_the_example_is_good() -> None:
    balancer = good(EXAMPLE.read_text()).config.balancer
    assert list(balancer.frontends) == ["www", "dns"]
    assert balancer.healthchecks["web"].ranges == ((200, 299), (304, 304))
    assert balancer.healthchecks["web"].fast_interval == timedelta(milliseconds=250)
    assert balancer.frontends["dns"].flush_on_down is False
    assert [pool.name for pool in balancer.frontends["www"].pools] == ["primary", "spare"]
    assert balancer.frontends["www"].pools[0].backends["web-2"].weight == 50


def test_a_single_check_stands_for_a_list_of_one() -> None:
    backends = good(GOOD).config.balancer.backends
    assert backends["a"].healthcheck == backends["b"].healthcheck == ("web",)


def test_hyphens_and_underscores_are_the_same_field() -> None:
    for key in ("flush-on-down", "flush_on_down"):
        frontend = good(
            GOOD.replace("      port: 80\n", f"      port: 80\n      {key}: false\n")
        ).config.balancer.frontends
        assert not frontend["www"].flush_on_down
    assert changed("      port: 80\n", "      flush-on-down: true\n      flush_on_down: true\n") == [
        "f:11:7: balancer.frontends.www.flush_on_down: is given twice, first on line 10: remove one"
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "type: http",
            "type: smtp",
            "f:3:17: balancer.healthchecks.web.type: is 'smtp': write icmp, tcp, http, https, udp, dns or grpc",
        ),
        (
            "{type: http}",
            "{}",
            "f:3:10: balancer.healthchecks.web: has no type: write one `icmp` or `tcp` or `http` or",
        ),
        (
            "{type: http}",
            "[http]",
            "f:3:10: balancer.healthchecks.web: is a section: write its fields below it, indented",
        ),
        (
            "{type: http}",
            "{type: http, rise: 0}",
            "f:3:29: balancer.healthchecks.web.rise: is 0, less than 1: a flapping backend",
        ),
        (
            "{type: http}",
            "{type: tcp, path: /x}",
            "f:3:22: balancer.healthchecks.web.path: has no effect on a check of",
        ),
        ("{type: http}", "{type: http, status: 9}", "f:3:31: balancer.healthchecks.web.status: is '9': write a status"),
        (
            "{type: http}",
            "{type: http, body: '('}",
            "f:3:29: balancer.healthchecks.web.body: is '(', which is not a reg",
        ),
        ("    a: {", "    a b: {", "f:5:5: balancer.backends.a b: is 'a b': a name is up to 63 letters"),
        (
            "10.0.0.1,",
            "10.0.0.256,",
            "f:5:18: balancer.backends.a.address: is '10.0.0.256', which is not an IP address",
        ),
        (
            "10.0.0.1,",
            "'fe80::1%eth0',",
            "f:5:18: balancer.backends.a.address: is 'fe80::1%eth0': write the address with",
        ),
        (
            "address: 10.0.0.1, ",
            "",
            "f:5:5: balancer.backends.a: has neither address nor endpoint nor host: give exactly",
        ),
        ("address: 10.0.0.1, ", "host: r1, ", "f:5:9: balancer.backends.a.host: needs balancer.source: etcd"),
        (
            "healthcheck: web}",
            "healthcheck: wab}",
            "f:5:38: balancer.backends.a.healthcheck: names the check 'wab', whic",
        ),
        ("1, port: 80, h", "1, h", "f:5:28: balancer.backends.a.healthcheck: names the check 'web', which has no port"),
        ("{a: {}, ", "{c: {}, ", "f:12:22: balancer.frontends.www.pools[0].backends.c: is not in balancer.backends"),
        (
            "weight: 50",
            "weight: 101",
            "f:12:41: balancer.frontends.www.pools[0].backends.b.weight: is 101, more than 100",
        ),
        (
            "10.0.0.2,",
            "'::2',",
            "f:12:29: balancer.frontends.www.pools[0].backends.b: has the address ::2, not of the fam",
        ),
        (
            "10.0.0.2,",
            "10.0.0.1,",
            "f:12:29: balancer.frontends.www.pools[0].backends.b: has the address and port of a",
        ),
        (
            "      port: 80\n",
            "      prot: 80\n",
            "f:10:7: balancer.frontends.www.prot: is not a known field; did you mean port?",
        ),
        (
            "      port: 80\n",
            "      protocol: any\n      port: 80\n",
            "f:11:7: balancer.frontends.www.port: needs a proto",
        ),
        (
            "- backends: {a: {}, ",
            "- backends: {b: {}}\n        - backends: {a: {}, ",
            "f:13:29: balancer.frontends.www.pools[1].b",
        ),
        (
            "        - backends: {a: {}, b: {weight: 50}}",
            "        backends: {}",
            "f:12:9: balancer.frontends.www.pools: is not a",
        ),
        (
            "balancer:\n",
            "balancer:\n  startup-min-delay: 31s\n",
            "f:2:3: balancer.startup_min_delay: must not be longer th",
        ),
        (
            "      port: 80\n",
            "      withdraw-after: 1m\n",
            "f:10:7: balancer.frontends.www.withdraw_after: needs announce",
        ),
        (
            "      port: 80\n",
            "      table-size: 1000\n",
            "f:10:19: balancer.frontends.www.table_size: is '1000': write one of the primes 1021, 4093, 16381, 65537",
        ),
    ],
)
def test_every_problem_has_its_line_and_column(old: str, new: str, said: str) -> None:
    (sentence,) = changed(old, new)
    assert sentence.startswith(said)


def test_a_frontend_cannot_have_the_address_of_another() -> None:
    again = GOOD + "    other: {address: 192.0.2.1, port: 80}\n"
    assert wrong(again) == [
        "f:13:13: balancer.frontends.other.address: has the address, protocol and port of frontend www: remove one"
    ]


def test_all_problems_are_reported_at_once_without_their_consequences() -> None:
    both = GOOD.replace("type: http", "type: x").replace("weight: 50", "weight: x")
    assert [line.split(": ")[1] for line in wrong(both)] == [
        "balancer.healthchecks.web.type",
        "balancer.frontends.www.pools[0].backends.b.weight",
    ]


def test_workers_get_the_same_configuration() -> None:
    config = good(EXAMPLE.read_text()).config
    assert restore(dump(config)) == config


def test_the_shown_yaml_gives_the_same_configuration() -> None:
    loaded = good(EXAMPLE.read_text())
    assert good(as_yaml(loaded, origin=True)).config == loaded.config
    assert '"address":"10.0.0.12"' in as_table(loaded, origin=True).replace(" ", "")
    assert '"slow_start": "30s"' in as_json(loaded, origin=False)


def in_groups(found: Mapping[str, Field]) -> Iterator[tuple[str, Field]]:
    """Every value inside a group, however deep."""
    for path, field in found.items():
        if field.section is not None:
            below = {f"{path}.{name}": one for name, one in fields(field.section).items()}
            yield from ((name, one) for name, one in below.items() if one.scalar)
            yield from in_groups(below)


IN_GROUPS = dict(in_groups({path: field for path, field in SETTINGS.items() if field.is_group}))


@pytest.mark.parametrize("field", IN_GROUPS.values(), ids=list(IN_GROUPS))
def test_every_field_of_a_group_is_documented_with_consequences(field: Field) -> None:
    doc = field.doc
    measured = field.noun in ("duration", "size", "whole number")
    assert doc.what.endswith(".")
    assert measured == (doc.least is not None) == (doc.most is not None) == bool(doc.small) == bool(doc.big)


def test_the_reference_describes_groups() -> None:
    page = reference()
    assert "### `balancer.frontends.NAME.pools[].backends.NAME.weight`" in page
    assert "### `balancer.healthchecks.NAME.type`" in page


def many(count: int, size: int | None = None) -> str:
    """A frontend with that many backends."""
    backends = "".join(f"    b{n}: {{address: 10.{n >> 8}.{n & 255}.1}}\n" for n in range(count))
    members = ", ".join(f"b{n}: " for n in range(count))
    extra = "" if size is None else f"      table-size: {size}\n"
    frontend = f"    www:\n      address: 192.0.2.1\n{extra}      pools: [{{backends: {{{members}}}}}]\n"
    return f"balancer:\n  backends:\n{backends}  frontends:\n{frontend}"


def test_less_than_100_buckets_per_backend_are_a_warning() -> None:
    assert good(many(10, 1021)).warnings == ()
    (warning,) = good(many(11, 1021)).warnings
    assert str(warning) == (
        "f:17:7: balancer.frontends.www.table_size: gives 1,021 buckets to 11 backends of a pool: below 100 for each, "
        "their shares are uneven; write a larger table_size"
    )


def test_the_default_is_16381_buckets_and_too_few_of_them_are_reported_at_the_frontend() -> None:
    loaded = good(many(200))
    assert loaded.config.balancer.frontends["www"].table_size == 16381
    assert [str(one).partition(": gives")[0] for one in loaded.warnings] == ["f:204:5: balancer.frontends.www"]


def test_less_buckets_than_backends_are_an_error() -> None:
    assert len(good(many(1021, 1021)).warnings) == 1
    (error,) = wrong(many(1022, 1021))
    assert error == (
        "f:1028:7: balancer.frontends.www.table_size: gives 1,021 buckets to 1,022 backends of a pool, which is too "
        "few: write a larger table_size"
    )


def test_tables_have_a_prime_number_of_buckets() -> None:
    for size in TABLE_SIZES:
        assert all(size % divisor for divisor in range(2, int(size**0.5) + 1))


def test_the_balancer_section_is_valid_alone_and_the_rest_has_its_defaults() -> None:
    assert good(GOOD).config.store == Config().store


HEADERS = GOOD.replace("{type: http}", "{type: http, headers: [%s]}")


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ('"no header"', "is not a header: write its name, a colon and its value"),
        ('"Bad Name: x"', "is not a header: write its name, a colon and its value"),
        ('"X-Probe:"', "is header X-Probe with a value that is empty or not printable ASCII"),
        ('"X-Probe: sch\u00f6n"', "is header X-Probe with a value that is empty or not printable ASCII"),
        ('"X-Probe: a\\r\\nX-Evil: b"', "is header X-Probe with a value that is empty or not printable ASCII"),
        ('"Host: www"', "is the host header: use the field host"),
        ('"Content-Length: 5"', "is header Content-Length, which the probe itself decides: remove it"),
        ('"X-Api-Key: hunter2"', "is header X-Api-Key, which looks like a secret"),
        ('"a: 1", "A: 2"', "has header A a second time: remove one"),
    ],
)
def test_a_bad_header_is_refused_and_its_value_not_repeated(header: str, sentence: str) -> None:
    (problem,) = wrong(HEADERS % header)
    assert "balancer.healthchecks.web.headers" in problem
    assert sentence in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ("type: http, method: HEAD, body: ok", "body: cannot match: the answer to HEAD has no body"),
        ("type: https, cert-file: /c.pem", "cert_file: needs key_file as well"),
        ("type: http, cert-file: /c.pem, key-file: /c.key", "cert_file: has no effect on a check of type http"),
        ("type: tcp, method: HEAD", "method: has no effect on a check of type tcp"),
        ('type: http, header-files: "Authorization: hunter2"', "is header Authorization without a file"),
    ],
)
def test_settings_of_requests_that_do_not_fit_are_refused(settings: str, sentence: str) -> None:
    problems = wrong(GOOD.replace("{type: http}", f"{{{settings}}}"))
    assert any(sentence in problem for problem in problems), problems
    assert not any("hunter2" in problem for problem in problems)


def test_a_secret_header_is_shown_and_dumped_by_its_file() -> None:
    text = GOOD.replace("{type: http}", '{type: http, header-files: "Authorization: credential:probe"}')
    loaded = good(text)
    assert loaded.config.balancer.healthchecks["web"].secret_headers == (("Authorization", "credential:probe"),)
    assert "Authorization: credential:probe" in as_yaml(loaded, origin=False)
    assert restore(dump(loaded.config)) == loaded.config


def test_a_backend_outside_the_probe_networks_is_refused_in_a_file() -> None:
    check, inside = HealthCheck(type="tcp"), Backend(address="10.0.0.1", port=80, healthcheck=("web",))
    outside = Backend(address="169.254.169.254", port=80, healthcheck=("web",))
    backends = {"a": inside, "b": outside, "unchecked": Backend(address="192.0.2.1", port=80)}
    settings = BalancerSettings(probe_networks=("10.0.0.0/8",), healthchecks={"web": check}, backends=backends)
    (conflict,) = settings.conflicts()
    assert conflict.fields[0] == "backends.b.address"
    assert "is 169.254.169.254, which may not be probed" in conflict.sentence
