"""Webhook: which URLs are refused, and that no answer can stop the caller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.sections.status import StatusSettings
from holdfast.runtime.config_file import read_secret
from holdfast.server.webhook import Webhook
from tests.server.webhook_server import DRIP, HANG, Hook


@pytest.mark.parametrize(
    "url", ["http://[::1/", f"http://{'x' * 64}.example/", "http://.example.com/", "http://127.0.0.1/\u00fc", "http://"]
)
def test_a_url_that_cannot_be_called_is_refused_and_fails_only_its_call(url: str) -> None:
    assert [conflict.fields for conflict in StatusSettings(webhook=url).conflicts()] == [("webhook",)]
    refusal = asyncio.run(Webhook(url)({"idempotency_key": "x"}))
    assert refusal is not None
    assert refusal.startswith("the webhook")


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc/", "http://127.0.0.1:99999/", "http://a b/", "http://a/\n"])
def test_a_url_with_a_port_or_a_sign_that_makes_no_sense_is_refused(url: str) -> None:
    assert [conflict.fields for conflict in StatusSettings(webhook=url).conflicts()] == [("webhook",)]


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/a?b=c", "https://[::1]:1/x%20y", "http://hooks.example.com"])
def test_a_url_that_can_be_called_is_accepted(url: str) -> None:
    assert list(StatusSettings(webhook=url).conflicts()) == []


def test_a_redirect_to_an_invalid_url_is_a_refusal(hook: Hook) -> None:
    hook.location, hook.answers = "http://[::1", [302]
    refusal = asyncio.run(Webhook(hook.url)({"idempotency_key": "x"}))
    assert refusal is not None
    assert refusal.startswith("the webhook")


def test_an_answer_that_comes_byte_by_byte_is_a_timeout(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.webhook.DEADLINE_S", 0.3)
    hook.answers = [DRIP]
    webhook = Webhook(hook.url)
    assert asyncio.run(webhook({"idempotency_key": "x"})) == "the webhook has not answered within 0 s"
    assert asyncio.run(webhook({"idempotency_key": "x"})) is None


def test_the_deadline_also_holds_while_the_connection_is_being_made(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = asyncio.open_connection

    async def slowly(*args: Any, **options: Any) -> Any:
        await asyncio.sleep(0.5)
        return await connect(*args, **options)

    monkeypatch.setattr("holdfast.server.webhook.DEADLINE_S", 0.2)
    monkeypatch.setattr(asyncio, "open_connection", slowly)
    hook.answers = [DRIP]
    assert asyncio.run(Webhook(hook.url)({"idempotency_key": "x"})) == "the webhook has not answered within 0 s"
    assert hook.heard == []


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("https://hooks.example.com/x?token=abc", "looks like a secret"),
        ("http://hooks.example.com/x", "unencrypted"),
        (None, "needs status.webhook"),
        ("https://hooks.example.com/x", ""),
        ("http://127.0.0.1:1/x", ""),
    ],
)
def test_a_token_comes_from_a_file_and_goes_over_tls(url: str | None, part: str) -> None:
    (*found,) = StatusSettings(webhook=url, webhook_token_file="/etc/token").conflicts()
    assert len(found) == bool(part)
    assert not part or part in found[0].sentence


def test_a_token_is_sent_and_one_that_cannot_be_read_costs_the_call(hook: Hook, tmp_path: Path) -> None:
    file = tmp_path / "token"
    webhook = Webhook(hook.url, lambda: read_secret(str(file), {}))
    refusal = asyncio.run(webhook({"idempotency_key": "x"}))
    assert refusal is not None
    assert "status.webhook_token_file" in refusal
    file.touch(0o600)
    file.write_text("s3cret\n")
    assert asyncio.run(webhook({"idempotency_key": "x"})) is None
    assert hook.authorizations == ["Bearer s3cret"]


def test_a_webhook_that_never_answers_is_given_up(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.server.webhook.TIMEOUT_S", 0.2)
    hook.answers = [HANG]
    assert asyncio.run(Webhook(hook.url)({"idempotency_key": "x"})) == "the webhook cannot be reached: timed out"
