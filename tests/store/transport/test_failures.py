"""Classification of failures that needs no server; test_refusals has the rest."""

from __future__ import annotations

import json
import ssl

import pytest

from holdfast.store.api import Compacted, LeaseGone, NoSpace, StoreError, TooLarge
from holdfast.store.transport import failures as explain
from holdfast.store.transport.failures import Failed, Login, StaleToken

URL = "https://etcd-1:2379"
NOBODY = Login()


def said(message: str, code: int, login: Login = NOBODY) -> explain.Finding | None:
    return explain.answer(URL, 400, json.dumps({"message": message, "code": code}).encode(), login)


@pytest.mark.parametrize(
    ("message", "code", "kind"),
    [
        ("etcdserver: mvcc: required revision has been compacted", 11, Compacted),
        ("etcdserver: requested lease not found", 5, LeaseGone),
        ("etcdserver: mvcc: database space exceeded", 8, NoSpace),
        ("etcdserver: request is too large", 3, TooLarge),
        ("grpc: received message larger than max (3000008 vs. 2097152)", 8, TooLarge),
        ("etcdserver: too many operations in txn request", 3, TooLarge),
        ("etcdserver: duplicate key given in txn request", 3, StoreError),
        ("etcdserver: invalid auth token", 16, StaleToken),
        ("etcdserver: revision of auth store is old", 3, StaleToken),
    ],
)
def test_an_error_of_etcd_is_named(message: str, code: int, kind: type) -> None:
    assert type(said(message, code)) is kind


@pytest.mark.parametrize(
    ("message", "uncertain"),
    [
        ("etcdserver: request timed out", True),
        ("etcdserver: leader changed", True),
        ("etcdserver: no leader", False),
        ("etcdserver: too many requests", False),
    ],
)
def test_a_failure_states_whether_the_write_may_have_happened(message: str, uncertain: bool) -> None:
    finding = said(message, 14)
    assert isinstance(finding, Failed)
    assert (finding.uncertain, finding.refused) == (uncertain, False)


@pytest.mark.parametrize("message", ["connection closed", "write tcp 127.0.0.1:1: use of closed network connection"])
def test_a_gateway_that_its_own_server_does_not_let_in_is_recognized_in_any_of_its_words(message: str) -> None:
    finding = said(message, 14, Login(certificate=True))
    assert isinstance(finding, Failed)
    assert "needs the clientAuth usage too" in finding.why


def test_an_expired_certificate_and_another_name_are_distinguished() -> None:
    expired = ssl.SSLCertVerificationError(1, "x")
    expired.verify_message = "certificate has expired"
    renamed = ssl.SSLCertVerificationError(1, "x")
    renamed.verify_message = "Hostname mismatch, certificate is not valid for 'etcd-1'."
    assert "has expired; renew it" in explain.connection(URL, expired, NOBODY).why
    assert "is for another name" in explain.connection(URL, renamed, NOBODY).why


def test_a_page_of_some_proxy_is_not_taken_for_etcd() -> None:
    finding = explain.answer(URL, 403, b"<html>Forbidden</html>", NOBODY)
    assert isinstance(finding, Failed)
    assert "is not etcd (it answers with HTTP 403)" in finding.why


def test_a_proxy_that_finds_no_etcd_behind_it_is_merely_away() -> None:
    finding = explain.answer(URL, 502, b"Bad Gateway", NOBODY)
    assert isinstance(finding, Failed)
    assert not finding.refused


def test_a_user_without_the_right_role_gets_that_as_the_reason() -> None:
    finding = said("etcdserver: permission denied", 7, Login(user="ada"))
    assert isinstance(finding, Failed)
    assert "denies user ada this key" in finding.why
