"""Secrets do not survive in a dump, in whatever form they appear; what an operator needs does."""

from __future__ import annotations

import json

import pytest

from holdfast.cli.sysdump.scrub import scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://holdfast:hunter2@db/inventory",
        "https://hooks.example/arrived?key=hunter2&x=1",
        "Authorization: Bearer hunter2",
        'headers: {Authorization: "hunter2"}',
        '"authorization": "hunter2"',
        "X-Api-Key: hunter2",
        "password = hunter2",
        "store.password: 'hunter2'",
        "HOLDFAST_STORE_TOKEN=hunter2",
        "Cookie: hunter2",
        "password=/hunter2",
        "X-Api-Key: '/hunter2'",
        "postgresql://holdfast:a/hunter2@db/inventory",
        "postgresql://holdfast:a'b@hunter2@/inventory?host=/run",
        f"created holdfast_{'hunter2-Aa_'.ljust(43, 'x')} just now",
        "-----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_secret_is_removed(text: str) -> None:
    assert "hunter2" not in scrubbed(text)


def test_a_known_secret_is_removed_as_json_has_it_too() -> None:
    secret = 'hun"ter\\2-ü'
    for text in (json.dumps({"why": secret}), json.dumps({"why": secret}, ensure_ascii=False)):
        assert scrubbed(text, [secret]) == '{"why": "<removed>"}'


def test_a_known_secret_is_removed_wherever_it_is() -> None:
    told = scrubbed("etcd refused hunter2-and-more, and hunter2", ["hunter2", "hunter2-and-more", "abc"])
    assert told == "etcd refused <removed>, and <removed>"


@pytest.mark.parametrize(
    "text",
    [
        "store.password_file  /etc/holdfast/etcd.password  f.yaml:3",
        "password_file: /etc/holdfast/etcd.password",
        "password_file: credential:etcd",
        "https://etcd-1.example:2379",
        "web: L7OK, 200",
        'holdfast_balancer_some_metric_with_a_long_name_in_seconds_bucket{le="1"} 3',
        '"password_file": "/etc/holdfast/etcd.password"',
        "syncer held by brake: would delete 34,812 of 98,211 endpoints",
    ],
)
def test_what_an_operator_needs_stays(text: str) -> None:
    assert scrubbed(text, ["hunter2"]) == text
