"""Files of `balancer.d/`: merged into the groups of the balancer, with every problem at its own file and line."""

from __future__ import annotations

from holdfast.config import ConfigFile, ConfigRejected, Loaded, resolve

MAIN = """\
log: {level: debug}
balancer:
  healthchecks: {web: {type: http}}
  backends: {a: {address: 10.0.0.1, port: 80, healthcheck: web}}
"""
SHOP = """\
balancer:
  backends: {b: {address: 10.0.0.2, port: 80, healthcheck: web}}
  frontends:
    shop: {address: 192.0.2.1, port: 80, pools: [{backends: {a: , b: }}]}
"""


def merged(*parts: str, main: str | None = MAIN) -> Loaded | ConfigRejected:
    files = [ConfigFile(f"balancer.d/{number}.yaml", text.encode()) for number, text in enumerate(parts)]
    return resolve(ConfigFile("main", main.encode()) if main else None, {}, parts=files)


def good(*parts: str, main: str | None = MAIN) -> Loaded:
    result = merged(*parts, main=main)
    assert isinstance(result, Loaded), str(result)
    return result


def wrong(*parts: str) -> list[str]:
    result = merged(*parts)
    assert isinstance(result, ConfigRejected)
    return str(result).splitlines()


def test_a_part_adds_to_the_groups_and_may_name_members_of_other_files() -> None:
    loaded = good(SHOP)
    assert list(loaded.config.balancer.backends) == ["a", "b"]
    assert list(loaded.config.balancer.frontends) == ["shop"]
    assert loaded.config.log.level == "debug"
    assert str(loaded.origins["balancer.backends.b"]) == "balancer.d/0.yaml:2"
    assert loaded.parts == 1


def test_parts_are_enough_without_a_main_file() -> None:
    assert list(good("balancer: {healthchecks: {dns: {type: tcp}}}", main=None).config.balancer.healthchecks) == ["dns"]


def test_a_name_in_two_files_is_refused_with_both() -> None:
    again = "balancer:\n  backends:\n    b: {address: 10.0.0.3}\n    a: {address: 10.0.0.3}\n"
    assert wrong(SHOP, again) == [
        "balancer.d/1.yaml:3:5: balancer.backends.b: is defined in balancer.d/0.yaml:2 already: remove one",
        "balancer.d/1.yaml:4:5: balancer.backends.a: is defined in main:4 already: remove one",
    ]


def test_other_settings_belong_into_the_main_file() -> None:
    only = "belongs into the main file: here are only healthchecks, backends, frontends"
    assert wrong("log: {level: info}\nbalancer: {sync-interval: 5s, backends: {}}\n") == [
        f"balancer.d/0.yaml:1:1: log: {only}",
        f"balancer.d/0.yaml:2:12: balancer.sync-interval: {only}",
    ]


def test_an_unknown_key_is_named_as_everywhere() -> None:
    assert wrong("balancer: {frontend: {}}") == [
        "balancer.d/0.yaml:1:12: balancer.frontend: is not a known field; did you mean frontends?"
    ]


def test_a_conflict_is_reported_at_the_file_that_has_it() -> None:
    (problem,) = wrong(SHOP.replace("b: }}", "c: }}"))
    assert problem.startswith("balancer.d/0.yaml:4:")
    assert "c: is not in balancer.backends" in problem


def test_an_unsound_part_says_nothing_about_what_follows_from_it() -> None:
    (problem,) = wrong(SHOP.replace("10.0.0.2", "10.0.0"))
    assert problem.startswith("balancer.d/0.yaml:2:27: balancer.backends.b.address: is '10.0.0'")


def test_an_empty_part_is_refused_because_a_full_disk_leaves_such_files() -> None:
    (problem,) = wrong("")
    assert "balancer.d/0.yaml: is empty" in problem


def test_a_list_is_not_a_part() -> None:
    (problem,) = wrong("- a\n")
    assert "does not begin with balancer" in problem
