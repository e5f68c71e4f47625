"""The dashboard in a real browser: what it shows, how it comes back, that hostile names stay text, and its speed."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from holdfast.api.documents import UnknownState
from holdfast.api.tokens import TokenFile, TokenRole
from tests.api import browser as chromium
from tests.api.browser import Browser, opened
from tests.api.sample import SampleDocuments, serving

pytestmark = pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing() or "a browser is here")

HOSTILE = "<img src=x onerror=window.hit=1>\x1b[31m\u202egnp.exe"
SHOWN = "<img src=x onerror=window.hit=1>\\x1b[31m\\u202egnp.exe"


def test_a_closed_gate_shows_its_reason_and_the_command_that_releases_it(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.close_gate()
    with serving(documents) as port:
        opened(browser, port)
        assert browser.text("#verdict") == "1 needs you"
        problem = browser.text(".prob")
        assert "The inventory has no record that anyone deleted them" in problem
        assert 'holdfast gate allow syncer/witness --once --reason "…"' in problem
        copied = browser.run("return [...document.querySelectorAll('.prob [data-copy]')].map(one => one.dataset.copy)")
        shown = browser.run("return [...document.querySelectorAll('.prob code')].map(one => one.textContent)")
        assert copied == shown
        assert "15 held" in browser.text(".flow .isshut")


def test_a_problem_without_a_gate_shows_its_evidence_and_impact(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.lose_host(7)
    documents.problems.append({**documents.problems[0], "subject": "syncer", "sentence": "failing"})
    with serving(documents) as port:
        opened(browser, port)
        browser.wait("document.querySelector('.prob').innerText.includes('Evidence')", "the evidence")
        host, worker = browser.run("return [...document.querySelectorAll('.prob')].map(one => one.innerText)")
        assert "19 of 20 hosts of rack r001 report" in host
        assert "Routes to its endpoints stay on every other host" in host
        assert "ctl-1/syncer: ok, pulse 0.2 s ago" in worker
        assert "Changes of the inventory do not reach etcd" in worker


def test_the_problems_are_those_of_the_status_document(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.close_gate()
    documents.lose_host(3)
    documents.lose_host(4)
    with serving(documents) as port:
        opened(browser, port)
        document = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/status").read())
        shown = browser.run("return [...document.querySelectorAll('.prob')].map(one => one.getAttribute('aria-label'))")
        subjects = [one["subject"] for one in document["problems"] if one["needs_action"]]
        assert shown == [f"Problem {number}: {name}" for number, name in enumerate(subjects, start=1)]
        assert browser.text("#verdict") == "3 need you"
        copied = browser.run("return [...document.querySelectorAll('.prob [data-copy]')].map(one => one.dataset.copy)")
        commands = [text for one in document["problems"] for text in one["commands"].values() if text]
        assert copied == commands


def test_servers_whose_electors_do_not_answer_are_shown_once_and_are_not_said_to_be_absent(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.electors_answer = False
    paused = {"subject": "worker syncer", "sentence": "paused by root: “database”; it has no end"}
    documents.lose_host(0)
    documents.problems.append({**documents.problems[0], **paused})
    with serving(documents) as port:
        opened(browser, port)
        browser.wait("document.querySelector('#terms table')", "the fleet")
        names = browser.run("return [...document.querySelectorAll('.srv h3')].map(one => one.innerText)")
        assert sorted(names) == ["ctl-1", "ctl-2", "ctl-3"]
        assert "the elector here does not answer" in browser.text("#vitals")
        assert "leader" in browser.text(".srv")
        browser.wait("document.querySelector('#problems').innerText.includes('do not reach etcd')", "the impact")


def test_nobody_leads_is_said_and_shown(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.leader = ""
    with serving(documents) as port:
        opened(browser, port)
        browser.wait("document.querySelector('#vitals').innerText.includes('nobody')", "the missing leader")
        assert "nothing is written until a server is elected" in browser.text("#vitals")
        assert "lease not known" in browser.text("#vitals")


# The contrast of every text with what is behind it, as WCAG computes it.
CONTRAST = r"""
const part = (value) => { const c = value / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4 };
const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
const rgb = (text) => { const of = text.match(/[\d.]+/g).map(Number); return [of.slice(0, 3), of[3] ?? 1] };
const behind = (one) => {
  for (; one; one = one.parentElement) {
    const [colour, alpha] = rgb(getComputedStyle(one).backgroundColor);
    if (alpha === 1) return colour;
  }
  return [255, 255, 255];
};
const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  const one = node.parentElement;
  if (!node.data.trim() || !one.checkVisibility({opacityProperty: true})) continue;
  if (one.closest('.sr, .tip, .skip, dialog, .sw, .term, noscript')) continue;
  const pair = [light(rgb(getComputedStyle(one).color)[0]), light(behind(one))].sort((a, b) => b - a);
  const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
  if (ratio < 4.5) found.push(`${one.className || one.tagName} ${node.data.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
}
return found
"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("is_cut", [False, True])
def test_every_text_can_be_read(browser: Browser, *, dark: bool, is_cut: bool) -> None:
    documents = SampleDocuments()
    documents.close_gate()
    documents.lose_host(3)
    documents.backend_state = "down"
    browser.size(1440, 900, dark=dark)
    try:
        with serving(documents) as port:
            opened(browser, port)
            browser.wait(
                "document.querySelector('#terms table') && document.querySelector('#log time')", "all sections"
            )
            if not is_cut:
                assert browser.run(CONTRAST) == []
        if is_cut:
            browser.wait("document.body.classList.contains('stale')", "the cut to be noticed", within=30)
            assert browser.run(CONTRAST) == []
    finally:
        browser.size(1440, 900)


def test_who_asks_for_no_motion_gets_none(browser: Browser) -> None:
    with serving(SampleDocuments()) as port:
        opened(browser, port)
        moving = "return document.getAnimations().length"
        browser.wait("document.querySelector('.live .dot')", "the page to be live")
        assert browser.run(moving) > 0
        browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
        try:
            assert browser.run(moving) == 0
        finally:
            browser.size(1440, 900)


def test_changes_arrive_without_a_reload(browser: Browser) -> None:
    documents = SampleDocuments()
    with serving(documents) as port:
        opened(browser, port)
        assert browser.text("#verdict") == "All well"
        browser.run("window.here = 1")
        documents.leader, documents.term, documents.backend_state = "ctl-2", 9190000, "down"
        documents.states[7], documents.reasons = "s", {documents.names[7]: {"why": "lease expired"}}
        documents.log.append(documents.decision("vips", "transition", "backend/web-3", "up → down: L4TOUT"))
        browser.wait("document.querySelector('#vitals').innerText.includes('ctl-2')", "the new leader")
        browser.wait("document.querySelector('#vpools').innerText.includes('down')", "the backend to be down")
        browser.wait("document.querySelector('#h7').classList.contains('silent')", "the host to be silent")
        browser.wait("document.querySelector('#log').innerText.includes('up → down: L4TOUT')", "the decision")
        assert "web: L4TOUT" in browser.text("#vpools")
        assert "degraded" in browser.text("#vlist")
        assert browser.run("return window.here") == 1


def test_a_page_that_is_cut_off_says_so_and_comes_back_without_a_gap(browser: Browser) -> None:
    documents = SampleDocuments()
    with serving(documents) as port:
        opened(browser, port)
        browser.wait("document.querySelector('#log').innerText.includes('Created by alice')", "the first decision")
    browser.wait("document.querySelector('#verdict').innerText === 'Cannot tell'", "the cut to be noticed", within=30)
    assert "does not change" in browser.text("#banner")
    assert browser.run("return document.body.classList.contains('stale')")
    documents.log.append(documents.decision("syncer", "delete", "host/gone", "deleted while nobody looked"))
    with serving(documents, port):
        browser.wait("document.querySelector('#verdict').innerText === 'All well'", "the page to be back", within=90)
        browser.wait("document.querySelector('#log').innerText.includes('while nobody looked')", "what was missed")
        assert browser.text("#log").count("Created by alice") == 1
        browser.wait("document.querySelector('#banner').hidden", "the banner to go")


def test_a_section_that_is_not_read_any_more_is_not_shown_as_live(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_documents: SampleDocuments) -> dict[str, Any]:
        raise UnknownState("the store is unreachable")

    with serving(SampleDocuments()) as port:
        opened(browser, port)
        browser.wait("document.querySelector('#fresh').innerText.startsWith('Live')", "the page to be live")
        with monkeypatch.context() as patched:
            patched.setattr(SampleDocuments, "fleet", away)
            browser.wait("!document.querySelector('#banner').hidden", "the banner")
            assert "fleet" in browser.text("#banner")
            assert "the store is unreachable" in browser.text("#banner")
            assert browser.text("#fresh").startswith("Partly live")
        browser.wait("document.querySelector('#fresh').innerText.startsWith('Live')", "the page to be live again")
        assert browser.run("return document.querySelector('#banner').hidden")


def test_an_admin_token_releases_a_gate_and_sets_a_pause(browser: Browser, tmp_path: Path) -> None:
    documents, tokens = SampleDocuments(), TokenFile(tmp_path / "tokens.json")
    documents.close_gate()
    secret = tokens.create("alice", TokenRole.ADMIN)
    with serving(documents, tokens=tokens) as port:
        opened(browser, port)
        assert not browser.run("return document.querySelector('[data-run]')")
        browser.run("document.querySelector('[data-sign]').click()")
        browser.run("document.querySelector('dialog [name=token]').value = arguments[0]", secret)
        browser.run("document.querySelector('dialog[open] [data-do]').click()")
        browser.wait("document.querySelector('.prob [data-run]')", "the button of an admin")
        assert secret not in browser.run("return document.cookie + JSON.stringify(localStorage)")
        browser.run("document.querySelector('.prob [data-run]').click()")
        browser.wait("document.querySelector('dialog[open] pre')", "the plan")
        assert "delete endpoint e14" in browser.text("dialog[open] pre")
        browser.run("document.querySelector('dialog[open] [name=reason]').value = 'looked at it'")
        browser.run("document.querySelector('dialog[open] [data-do]').click()")
        browser.wait("document.querySelector('#verdict').innerText === 'All well'", "the gate to be open")
        assert documents.released == ("syncer/witness", "alice", "looked at it")
        browser.run("document.querySelector('dialog[open] [data-close]').click()")
        browser.wait("document.querySelector('#insp [data-run]')", "the button to pause")
        assert "Drain …" in browser.text("#insp")
        browser.run("document.querySelector('#insp [data-run]').click()")
        browser.run("document.querySelector('dialog[open] [name=reason]').value = 'new NIC'")
        browser.run("document.querySelector('dialog[open] [data-do]').click()")
        browser.wait("document.querySelector('#asked').innerText.includes('new NIC')", "the intent")
        assert "token alice" in browser.text("#asked")


def test_hostile_names_stay_text(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.close_gate()
    documents.problems[0]["sentence"] = HOSTILE
    documents.problems[0]["commands"]["inspect"] = f"holdfast explain {HOSTILE}"
    documents.names[0], documents.states[0] = HOSTILE, "s"
    documents.reasons = {HOSTILE: {"why": HOSTILE}}
    documents.log.append(documents.decision("syncer", "delete", HOSTILE, HOSTILE))
    with serving(documents) as port:
        opened(browser, port)
        browser.wait("document.querySelector('#log').innerText.includes('img src')", "the decision")
        for place in (".prob", "#exc", "#insp", "#log"):
            assert SHOWN in browser.text(place), place
        assert browser.run("return window.hit ?? 0") == 0
        assert browser.run("return document.querySelectorAll('main img').length") == 0


def test_the_page_asks_nobody_else_and_runs_no_inline_code(browser: Browser) -> None:
    with serving(SampleDocuments()) as port:
        opened(browser, port)
        found = browser.run("return performance.getEntriesByType('resource').map(one => new URL(one.name).origin)")
        assert set(found) == {f"http://127.0.0.1:{port}"}
        assert [one for one in browser.complaints() if "Security Policy" in one or "Uncaught" in one] == []
        browser.run(
            "const e = document.createElement('script'); "
            "try { e.text = 'window.inline = 1'; document.body.append(e) } catch { }"
        )
        assert browser.run("return window.inline ?? 0") == 0


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1024, 768), (1440, 900)])
def test_nothing_scrolls_sideways(browser: Browser, width: int, height: int, *, dark: bool) -> None:
    documents = SampleDocuments()
    documents.close_gate()
    documents.lose_host(7)
    browser.size(width, height, dark=dark)
    try:
        with serving(documents) as port:
            opened(browser, port)
            assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.size(1440, 900)


def test_the_keyboard_reaches_problems_hosts_and_sections(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.close_gate()
    with serving(documents) as port:
        opened(browser, port)
        browser.press("n")
        assert browser.run("return document.activeElement.className").startswith("prob")
        browser.press("4")
        assert browser.run("return document.activeElement.id") == "hosts"
        browser.press("/")
        assert browser.run("return document.activeElement.id") == "hf"
        browser.press("Escape")
        browser.run("document.querySelector('#grid').focus()")
        browser.press("ArrowRight")
        assert browser.run("return document.querySelector('.h.sel').id") == "h1"
        nameless = browser.run(
            "return [...document.querySelectorAll('button, input, [role=img]')].filter(one => !(one.innerText.trim() "
            "|| one.ariaLabel || one.closest('label') )).map(one => one.outerHTML)"
        )
        assert nameless == []


def test_five_thousand_hosts_are_patched_within_a_frame(browser: Browser) -> None:
    documents = SampleDocuments(5_000)
    with serving(documents) as port:
        opened(browser, port)
        assert browser.run("return document.querySelectorAll('.h[id]').length") == 5_000
        patch = (
            "return import('/dashboard/hosts.js').then(({onCells}) => { for (let turn = 0; turn < 20; turn++) "
            "onCells(Array.from({length: 500}, (_, at) => [at * 10, turn % 2 ? 'h' : 'b', null])) })"
        )
        browser.run(patch)
        before = browser.processor_ms()
        browser.run(patch)
        took = (browser.processor_ms() - before) / 20
        assert took < 16, f"{took} ms"
        documents.states[4_999] = "s"
        browser.wait("document.querySelector('#h4999').classList.contains('silent')", "the last host to be silent")


def test_five_thousand_hosts_are_drawn_within_500_ms_of_processor_time(browser: Browser) -> None:
    documents = SampleDocuments(5_000)
    documents.lose_host(4_000)
    draw = (
        "return import('/dashboard/hosts.js').then(({onHosts}) => import('/dashboard/state.js').then(({state}) => {"
        "onHosts({...state.hosts, names: state.hosts.names.map(one => `a${one}`)});"
        "return document.querySelector('#grid').offsetHeight }))"
    )
    with serving(documents) as port:
        opened(browser, port)
        took = []
        for _ in range(3):
            before = browser.processor_ms()
            assert browser.run(draw) > 0
            took.append(browser.processor_ms() - before)
        assert browser.run("return document.querySelectorAll('.h[id]').length") == 5_000
        assert min(took) < 500, took


@pytest.mark.parametrize("lasting_s", [5, pytest.param(60, marks=pytest.mark.soak)])
def test_nothing_moves_while_the_page_is_live(browser: Browser, lasting_s: int) -> None:
    with serving(SampleDocuments()) as port:
        opened(browser, port)
        filled = " && ".join(f"document.querySelector('{one}')" for one in ("#terms table", "#asked li", "#log time"))
        browser.wait(filled, "every section to be filled")
        browser.wait("document.querySelector('#insp').innerText.includes('Not known')", "the inspector")
        browser.run(
            "window.shift = 0; new PerformanceObserver(list => { for (const one of list.getEntries()) "
            "window.shift += one.value }).observe({type: 'layout-shift'}); window.heard = 0; "
            "setInterval(() => window.heard++, 1000)"
        )
        browser.wait(f"window.heard >= {lasting_s}", "messages for that long", within=180)
        assert browser.run("return window.shift") < 0.01
