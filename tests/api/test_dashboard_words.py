"""Words of the dashboard: a held plan, the end of a term, the kind of an event; and none of them broken on a phone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.api import browser as chromium
from tests.api.browser import Browser, opened
from tests.api.sample import SampleDocuments, serving

pytestmark = pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing() or "a browser is here")


def test_held_deletes_are_counted_named_and_have_one_full_stop(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.close_gate()
    release = "holdfast gate allow syncer/witness --once --reason …"
    documents.held = {worker: [{**one, "opens": release} for one in held] for worker, held in documents.held.items()}
    with serving(documents) as port:
        opened(browser, port)
        assert "The syncer holds 15 deletes." in browser.text(".prob h3")
        assert "15 deletes held: endpoint e0, endpoint e1, endpoint e2, and 12 more" in browser.text(".prob .kv")
        assert browser.text("#flow .why").endswith(f"To release: {release}")


def test_held_changes_that_are_not_all_deletes_say_so(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.close_gate()
    documents.held["ctl-1/syncer"][0]["op"] = "replace"
    with serving(documents) as port:
        opened(browser, port)
        assert "The syncer holds 15 changes." in browser.text(".prob h3")
        assert "15 changes held, 14 deletes among them: replace endpoint e0" in browser.text(".prob .kv")


def test_a_gate_is_closed_for_as_long_as_its_worker_says_not_only_since_the_api_has_seen_it(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.close_gate()
    documents.problems[0]["since"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    with serving(documents) as port:
        opened(browser, port)
        assert "held by witness 6 min 12 s" in browser.text(".prob .pmeta")
        assert "witness closed 6 min 12 s" in browser.text(".flow .why")


@pytest.mark.parametrize(("ended", "is_shown"), [("2026-11-15T14:02:51Z", False), ("2026-11-15T14:02:48.2Z", True)])
def test_the_time_without_a_leader_is_shown_where_it_is_known(browser: Browser, ended: str, *, is_shown: bool) -> None:
    class WithEnd(SampleDocuments):
        async def fleet(self) -> dict[str, object]:
            found = await super().fleet()
            found["terms"][0]["ended"] = ended
            return found

    with serving(WithEnd()) as port:
        opened(browser, port)
        assert "it could not prove its term in time" in browser.text("#terms")
        assert ("2.8 s without a leader" in browser.text("#terms")) is is_shown
        assert "0.0 s without a leader" not in browser.text("#terms")


def test_events_of_agents_and_of_endpoints_are_found_by_their_kind(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.log.append(documents.decision("agent", "create", "device IPv4 tunnel", "created 30"))
    documents.log.append(documents.decision("endpoint-status", "replace", "endpoint e1", "replaced (DOWN → ACTIVE)"))
    with serving(documents) as port:
        opened(browser, port)
        for kind, key in (("agent", "device IPv4 tunnel"), ("host", "endpoint e1")):
            browser.run("document.querySelector(arguments[0]).click()", f"[data-k={kind}]")
            assert key in browser.text("#log"), kind


LINES = """
const found = [];
for (const one of document.querySelectorAll(arguments[0])) {
  const range = document.createRange();
  range.selectNodeContents(one);
  if (new Set([...range.getClientRects()].map((each) => each.top)).size > 1) found.push(one.innerText);
}
return found
"""
NODES = """
const vals = [...document.querySelectorAll('.lane .node .val')].filter((one) => one.innerText);
return vals.flatMap((one, at) => vals.slice(at + 1).map((other) => [one, other])).filter(([one, other]) => {
  const [a, b] = [one, other].map((each) => {
    const range = document.createRange();
    range.selectNodeContents(each);
    return range.getBoundingClientRect();
  });
  const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
  return wide > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
}).map((pair) => pair.map((one) => one.innerText).join(' / '))
"""
CUT = """
return [...document.querySelectorAll('#log time')].filter((one) => {
  const range = document.createRange();
  range.selectNodeContents(one);
  return range.getBoundingClientRect().right > one.nextSibling.getBoundingClientRect().left;
}).map((one) => one.innerText)
"""


def test_on_a_phone_terms_addresses_and_times_stay_in_one_piece(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.backend_state = "down"
    with serving(documents) as port:
        browser.size(390, 844)
        try:
            opened(browser, port)
            browser.wait("document.querySelector('#terms table') && document.querySelector('#log time')", "all of it")
            assert browser.run(LINES, "#terms td:first-child, .pool .adr") == []
            assert browser.run(CUT) == []
        finally:
            browser.size(1440, 900)


@pytest.mark.parametrize("lag_s", [107.0, 8_040.0, 190_000.0])
@pytest.mark.parametrize("width", [390, 1440])
def test_a_long_lag_lies_on_no_other_figure_of_the_flow(browser: Browser, width: int, lag_s: float) -> None:
    class Late(SampleDocuments):
        async def summary(self) -> dict[str, Any]:
            found = await super().summary()
            for daemon in found["daemons"]:
                daemon["workers"] = [{**one, "lag_s": lag_s, "backlog": 1_234} for one in daemon["workers"]]
            return found

    with serving(Late()) as port:
        browser.size(width, 900)
        try:
            opened(browser, port)
            browser.wait("document.querySelector('.lane .node .val')?.innerText.endsWith(' lag')", "the lag")
            assert browser.run(NODES) == []
        finally:
            browser.size(1440, 900)
