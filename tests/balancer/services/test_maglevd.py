"""The configuration of maglevd as ours: every key of the mapping, and every key that has no place in it, by line."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.balancer.services.maglevd.keys import RULES
from holdfast.balancer.services.maglevd.translate import ImportedConfig, translate
from holdfast.config import ConfigFile, Loaded, resolve
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.model.base.time import seconds

FILE = """\
maglev:
  healthchecker:
    transition-history: 7
    netns: dataplane
  vpp:
    lb:
      sync-interval: 40s
      startup-min-delay: 6s
      startup-max-delay: 31s
      ipv4-src-address: 198.51.100.7
      ipv6-src-address: 2001:db8::7
      sticky-buckets-per-core: 2048
      flow-timeout: 50s
  healthchecks:
    web:
      type: https
      port: 443
      interval: 2s
      fast-interval: 500ms
      down-interval: 1m30s
      timeout: 3s
      rise: 4
      fall: 5
      params:
        path: /healthz
        host: www.example.org
        response-code: 200-204
        response-regexp: "^ok"
        server-name: sni.example.org
        insecure-skip-verify: true
    ping: {type: icmp, port: 80, probe-ipv4-src: 10.0.0.9, probe-ipv6-src: "2001:db8::9"}
  backends:
    one: {address: 10.0.0.1, healthcheck: web}
    two: {address: 10.0.0.2, healthcheck: ping, enabled: false}
    six: {address: "2001:db8::1", healthcheck: ping}
  frontends:
    www:
      description: web servers
      address: 192.0.2.80
      protocol: tcp
      port: 443
      flush-on-down: false
      src-ip-sticky: true
      pools:
      - name: primary
        backends:
          one: {weight: 50}
      - name: fallback
        backends:
          two: {}
    all: {address: "2001:db8::80", pools: [{name: only, backends: {six: }}]}
"""


def translated(text: str) -> ImportedConfig:
    return translate("maglev.yaml", text.encode())


def refused(old: str, new: str) -> str:
    assert FILE.count(old) == 1
    return str(translated(FILE.replace(old, new)).rejected)


def ours() -> BalancerSettings:
    made = translated(FILE)
    assert made.rejected is None, str(made.rejected)
    loaded = resolve(ConfigFile("ours", made.text.encode()), {})
    assert isinstance(loaded, Loaded)
    return loaded.config.balancer


def test_every_key_of_the_mapping_is_in_the_example() -> None:
    assert {rule.rpartition(".")[2] for rule in RULES} <= {word.strip(":{},- ") for word in FILE.split()}


def test_general_settings() -> None:
    found = ours()
    assert (found.transition_history, found.netns, found.sync_interval) == (7, "dataplane", seconds(40))
    assert (found.startup_min_delay, found.startup_max_delay) == (seconds(6), seconds(31))
    vpp = found.dataplane.vpp
    assert (found.dataplane.kind, vpp.source_ipv4, vpp.source_ipv6) == ("vpp", "198.51.100.7", "2001:db8::7")
    assert (vpp.sticky_buckets, vpp.flow_timeout) == (2048, seconds(50))


def test_vips_keep_the_table_that_maglevd_gave_them() -> None:
    assert ours().dataplane.vpp.table_length == 1024


def test_a_health_check() -> None:
    web = ours().healthchecks["web"]
    assert (web.type, web.port, web.rise, web.fall) == ("https", 443, 4, 5)
    assert (web.interval, web.fast_interval, web.down_interval) == (seconds(2), seconds(0.5), seconds(90))
    assert (web.timeout, web.path, web.host, web.sni) == (seconds(3), "/healthz", "www.example.org", "sni.example.org")
    assert (web.status, web.body, web.verify) == (("200-204",), "^ok", False)


def test_a_check_with_sources_is_one_for_each_family() -> None:
    found = ours()
    sources = {name: one.source for name, one in found.healthchecks.items()}
    assert sources == {"web": None, "ping-ipv4": "10.0.0.9", "ping-ipv6": "2001:db8::9"}
    checks = {name: one.healthcheck for name, one in found.backends.items()}
    assert checks == {"one": ("web",), "two": ("ping-ipv4",), "six": ("ping-ipv6",)}
    assert found.backends["two"].enabled is False
    assert translated(FILE).notes == (
        "health check ping: its port is left out, because a ping has none",
        "health check ping: is now ping-ipv4 and ping-ipv6, because a check has one source address",
    )


def test_frontends() -> None:
    www, everything = (ours().frontends[name] for name in ("www", "all"))
    assert (www.description, www.address, www.protocol, www.port) == ("web servers", "192.0.2.80", "tcp", 443)
    assert (www.flush_on_down, www.src_ip_sticky) == (False, True)
    assert [pool.name for pool in www.pools] == ["primary", "fallback"]
    assert [{name: one.weight for name, one in pool.backends.items()} for pool in www.pools] == [
        {"one": 50},
        {"two": None},
    ]
    assert (everything.protocol, everything.port) == ("any", 0)


def test_unknown_keys_are_reported_all_at_once_with_their_lines() -> None:
    text = FILE.replace("rise: 4", "rize: 4").replace("description:", "comment:")
    text = text.replace("maglev:\n", "maglev:\n  x: 1\n")
    assert str(translated(text).rejected).splitlines() == [
        "maglev.yaml:2:6: maglev.x: is not a key that can be translated",
        "maglev.yaml:23:13: maglev.healthchecks.web.rize: is not a key that can be translated; did you mean rise?",
        "maglev.yaml:39:16: maglev.frontends.www.comment: is not a key that can be translated",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("address: 10.0.0.1,", "address: 10.0.0.300,", "maglev.yaml:33:20: balancer.backends.one.address: is '10.0.0"),
        ("weight: 50", "weight: 500", "maglev.yaml:47:25: balancer.frontends.www.pools[0].backends.one.weight: is 500"),
        ("interval: 2s", "interval: 2", "balancer.healthchecks.web.interval: is '2', which is not a duration"),
        (
            "healthcheck: web",
            "healthcheck: wed",
            "names the check 'wed', which is not in healthchecks",
        ),
        ("    netns: dataplane\n", "    netns: [dataplane]\n", "maglev.healthchecker.netns: is not a single value"),
        ("    one: {address", "    one: 7\n    uno: {address", "maglev.backends.one: is not a table"),
    ],
)
def test_what_cannot_be_taken_is_reported_at_its_line(old: str, new: str, said: str) -> None:
    assert said in refused(old, new)


@pytest.mark.parametrize("text", ["", "[]", "maglev: [", "other: {}", "\0", "maglev: 3", "a: &x 1\nmaglev: *x"])
def test_rubbish_is_refused_and_never_raises(text: str) -> None:
    assert translated(text).rejected is not None


def test_weights_beyond_the_table_are_noted() -> None:
    lines = ["maglev:", "  backends:", *(f"    b{number}: {{address: 10.0.1.{number}}}" for number in range(11))]
    members = ", ".join(f"b{number}: " for number in range(11))
    lines += ["  frontends:", f"    www: {{address: 192.0.2.1, pools: [{{backends: {{{members}}}}}]}}"]
    (note,) = translated("\n".join(lines)).notes
    assert note.startswith("frontend www: its weights add up to 1,100, more than the 1,024 buckets")


def test_the_page_about_maglevd_names_every_key() -> None:
    page = (Path(__file__).parents[3] / "docs" / "from-maglevd.md").read_text()
    shown = {rule: f"`{rule.replace('.*.pools.*', '.NAME.pools[]').replace('*', 'NAME')}`" for rule in RULES}
    assert [rule for rule, key in shown.items() if key not in page] == []
