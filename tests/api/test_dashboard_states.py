"""The dashboard in a real browser, in rare states: unknown, unequal, warming up, on a phone, by keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.api import browser as chromium
from tests.api.browser import Browser, opened
from tests.api.sample import AT, NO_COMMANDS, TABLE_SIZE, SampleDocuments, reported, serving

pytestmark = pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing() or "a browser is here")


@contextmanager
def sized(browser: Browser, width: int, height: int) -> Iterator[None]:
    browser.size(width, height)
    try:
        yield
    finally:
        browser.size(1440, 900)


def starting(documents: SampleDocuments) -> None:
    """Two servers that have not said anything yet."""
    documents.electors_answer = False
    known = {"sentence": "starting", "needs_action": False, "known": False, "commands": NO_COMMANDS, "since": AT}
    names = ("elector", "syncer", "agent-status", "endpoint-status", "writer")
    documents.problems = [{"subject": name, **known} for name in (*names, *names)]


def test_gates_of_which_nothing_is_known_are_not_said_to_be_open(browser: Browser) -> None:
    documents = SampleDocuments()
    starting(documents)
    with serving(documents) as port:
        opened(browser, port)
        assert browser.text("#verdict") == "Cannot tell"
        assert browser.text("#r-flow") == "not every gate is known"
        assert "All gates are open" not in browser.text("#lanes")
        documents.electors_answer, documents.problems = True, []
        browser.wait("document.querySelector('#r-flow').innerText === 'no gate closed'", "the gates")
        assert "All gates are open" in browser.text("#lanes")


def test_what_waits_for_the_same_takes_one_row(browser: Browser) -> None:
    documents = SampleDocuments()
    starting(documents)
    with serving(documents) as port:
        opened(browser, port)
        rows = browser.run("return [...document.querySelectorAll('details.self li')].map(one => one.innerText)")
        assert len(rows) == 1
        assert rows[0].startswith("elector, syncer, agent-status and 2 more\nstarting")
        assert browser.text("#vsub") == "10 handled by itself"


def test_a_fleet_without_trouble_and_one_with_it_explain_the_right_host_first(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.states[3] = "b"
    documents.lose_host(17)
    with serving(documents) as port:
        opened(browser, port)
        assert browser.text("#insp h3") == documents.names[17]


# Pairs of texts that lie on each other, by the boxes in which they are drawn.
OVERLAPS = r"""
const boxes = [];
for (const part of document.querySelectorAll(arguments[0])) {
  const walker = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    if (!node.data.trim() || !node.parentElement.checkVisibility() || node.parentElement.closest('.sr')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const one of range.getClientRects()) if (one.width) boxes.push([node.data.trim().slice(0, 24), node, one]);
  }
}
const found = [];
boxes.forEach(([text, node, a], at) => {
  for (const [other, its, b] of boxes.slice(at + 1))
    if (node !== its && Math.min(a.right, b.right) - Math.max(a.left, b.left) > 2 &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 6) found.push(`${text} / ${other}`);
});
return found
"""


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1024, 768), (1440, 900)])
def test_no_text_lies_on_another(browser: Browser, width: int, height: int) -> None:
    documents = SampleDocuments()
    starting(documents)
    documents.lose_host(3)
    with sized(browser, width, height), serving(documents) as port:
        opened(browser, port)
        browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
        browser.wait("document.querySelector('#terms table')", "every section")
        assert browser.run(OVERLAPS, ".top, #vitals, #problems, #daemons, #insp, #vdet, #terms, #asked") == []


def test_a_phone_folds_followers_and_the_details_of_a_host(browser: Browser) -> None:
    shown = "return [...document.querySelectorAll('.srv table')].map(one => one.checkVisibility())"
    details = "return document.querySelector('#insp .kv').checkVisibility()"
    with sized(browser, 390, 844), serving(SampleDocuments()) as port:
        opened(browser, port)
        assert browser.run(shown) == [True, False, False]
        assert not browser.run(details)
        browser.run("document.querySelectorAll('.srv .unfold')[1].click()")
        browser.run("document.querySelector('#insp .unfold').click()")
        assert browser.run(shown) == [True, False, True]
        assert browser.run(details)
    with serving(SampleDocuments()) as port:
        opened(browser, port)
        assert browser.run(shown) == [True] * 3
        assert browser.run(details)


def test_tables_that_differ_a_panic_and_a_warm_up_are_said(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.reports = {"lb-2": {"table": "ffff12aa", "frontends": {"web": "up", "dns": "up"}}}
    documents.is_panicking, documents.backend_state, documents.warm_up = True, "down", "3 of 4 backends known"
    with serving(documents) as port:
        opened(browser, port)
        assert "tables differ: equal on 1 of 2" in browser.text("#vitals")
        assert "Tables differ: 1 of 2 are equal" in browser.text("#pic")
        assert browser.run("return document.querySelectorAll('#dig code.bad').length") == 1
        assert "panic" in browser.text("#vlist")
        assert "all backends serve, healthy or not" in browser.text("#vhead")
        assert "nothing is written before the backends are probed" in browser.text("#vhead")


ROWS = "return [...document.querySelectorAll('#vpools tbody tr')].map((row) => row.innerText.replace(/\\s+/g, ' '))"


def test_pools_of_balancers_on_other_machines_are_shown(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.has_balancer = False
    both = {"web_1": "up", "web_2": "down"}
    documents.reports = {
        "lb-2": reported(**both),
        "lb-3": reported(**both),
        "old": {"table": "b71e09aa", "frontends": {"web": "up"}},
    }
    with serving(documents) as port:
        opened(browser, port)
        assert "degraded" in browser.text("#vlist")
        assert "1 of 2" in browser.text("#vlist")
        assert "as reported by lb-2; also on lb-3, old" in browser.text("#vhead")
        browser.wait("/down \\d+ d/.test(document.querySelector('#vpools').innerText)", "the age, by the status")
        head, up, down = browser.run(ROWS)
        assert "serves, 1 of 2 up" in head
        assert "web-1 10.28.3.1:8443 100 up measured on lb-2 –" in up
        assert "web-2 10.28.3.2:8443 0 of 100 down" in down
        assert "web: L4TOUT" in down
        assert [one for one in browser.complaints() if "Uncaught" in one] == []


def test_a_row_says_which_balancer_it_is_from_where_they_differ(browser: Browser) -> None:
    documents = SampleDocuments()
    alike, unlike = (
        reported(web_1="up", web_2="up", web_3="up"),
        reported(web_1="up", web_2="down", web_3="up", web_4="up"),
    )
    documents.reports = {"lb-2": alike, "lb-3": unlike, "lb-4": unlike}
    with serving(documents) as port:
        opened(browser, port)
        assert "serving on lb-1, lb-2; degraded on lb-3, lb-4" in browser.text("#vlist")
        assert "as seen by lb-1; also on lb-2, lb-3, lb-4" in browser.text("#vhead")
        rows = browser.run(ROWS)
        assert [row for row in rows if " on lb-" in row and not row.startswith("web-4")] == rows[2:4]
        assert "on lb-1, lb-2 100 up" in rows[2]
        assert rows[3].startswith("web-2 on lb-3, lb-4 0 of 100 down")
        assert rows[5].startswith("web-4 on lb-3, lb-4 100 up")
        documents.reports = {"lb-2": alike}
        browser.wait("!document.querySelector('#vpools').innerText.includes(' on lb-')", "the difference to go")


def test_the_balancer_here_and_a_table_that_differs_are_among_the_tables_shown(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.reports = {f"lb-{number}": reported(web_1="up") for number in range(2, 8)}
    documents.reports["lb-7"]["table"] = "ffff12aa"
    with serving(documents) as port:
        opened(browser, port)
        shown = browser.run(
            "return [...document.querySelectorAll('#dig li')].map((one) => one.innerText.split(/\\s+/))"
        )
        assert shown == [["lb-1", "b71e09"], ["lb-7", "ffff12"], ["lb-2", "b71e09"], ["lb-3", "b71e09"]]
        assert "Tables differ: 6 of 7 are equal" in browser.text("#pic")


def test_a_frontend_that_is_dark_on_one_balancer_is_degraded(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.reports = {"lb-2": reported(web_1="down")}
    with serving(documents) as port:
        opened(browser, port)
        assert "serving on lb-1; dark on lb-2" in browser.text("#vlist")
        assert "degraded 1" in browser.text("#vitals")
        assert "dark 0" in browser.text("#vitals")


PICTURE = """
const canvas = document.querySelector('#cv'), {data} = canvas.getContext('2d').getImageData(0, 0, 256, canvas.height);
const found = {};
for (let at = 0; at < arguments[0]; at++) {
  const colour = data.slice(at * 4, at * 4 + 3).join();
  found[colour] = (found[colour] ?? 0) + 1;
}
return Object.values(found).sort((a, b) => a - b)
"""


def test_the_bucket_table_is_a_picture_that_keys_walk(browser: Browser) -> None:
    documents = SampleDocuments()
    with serving(documents) as port:
        opened(browser, port)
        browser.wait("document.querySelector('#bk').innerText.includes('buckets')", "the table")
        assert browser.run(PICTURE, TABLE_SIZE) == [5460, 5460, 5461]
        browser.run("document.querySelector('#cv').focus()")
        browser.press("ArrowRight")
        assert "Bucket 1 → C web-3" in browser.text("#bk")
        browser.press("ArrowDown")
        assert "Bucket 257 →" in browser.text("#bk")
        browser.press("ArrowUp")
        documents.backend_state = "down"
        browser.wait("document.querySelector('#bk').innerText.includes('stand-in for C web-3')", "the new table")
        assert len(browser.run(PICTURE, TABLE_SIZE)) == 2
        browser.run("document.querySelector('[data-m=moved]').click()")
        assert re.search(r"5,46\d buckets \(33\.3 %\) are with stand-ins for web-3", browser.text("#bk"))


def test_every_key_of_the_help_does_what_it_says_and_can_be_switched_off(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.close_gate()
    documents.lose_host(3)
    with serving(documents) as port:
        opened(browser, port)
        browser.run("window.copied = []; navigator.clipboard.writeText = async (text) => { window.copied.push(text) }")
        for _ in range(2):
            browser.press("n")
        browser.press("p")
        assert browser.run("return document.activeElement.ariaLabel") == "Problem 1: syncer"
        browser.press("c")
        assert browser.run("return window.copied") == ["holdfast diff inventory --network red"]
        browser.press("e")
        assert browser.run("return document.activeElement.id") == "ef"
        browser.press("Escape")
        assert browser.run("return document.activeElement === document.body")
        browser.press("t")
        assert browser.run("return document.documentElement.dataset.theme") == "light"
        sections = ("needs", "flow", "workers", "hosts", "vips", "leadership", "intents", "events")
        for number, section in enumerate(sections, start=1):
            browser.press(str(number))
            assert browser.run("return document.activeElement.id") == section
        browser.press("?")
        assert browser.run("return document.querySelector('#keys').open")
        browser.run("document.querySelector('#kon').click(); document.querySelector('#keys').close()")
        browser.press("t")
        assert browser.run("return document.documentElement.dataset.theme") == "light"
        browser.run("document.querySelector('#kon').click(); localStorage.clear()")


def test_a_filter_dims_the_others_and_moves_nothing(browser: Browser) -> None:
    documents = SampleDocuments()
    documents.lose_host(3)
    place = "const it = document.querySelector('#h9').getBoundingClientRect(); return [it.x, it.y]"
    with serving(documents) as port:
        opened(browser, port)
        before = browser.run(place)
        browser.run("document.querySelector('[data-f=s]').click()")
        assert browser.run("return document.querySelectorAll('.h[id]:not(.dim)').length") == 1
        assert browser.run(place) == before
        browser.run("document.querySelector('[data-f=\"\"]').click()")
        assert browser.run("return document.querySelectorAll('.h.dim').length") == 0


def test_an_event_is_marked_by_what_became_of_its_object(browser: Browser) -> None:
    documents = SampleDocuments()
    for name, sentence in (("a", "replaced (silent → alive): now wanted"), ("b", "alive → silent: lease expired")):
        documents.log.append(documents.decision("agent-status", "transition", f"agent/{name}", sentence))
    marks = """
        const rows = [...document.querySelectorAll('#log li')].filter(one => one.innerText.includes('agent/'));
        return Object.fromEntries(rows.map(one => [one.querySelector('.o').innerText, !!one.querySelector('.sd.down')]))
    """
    with serving(documents) as port:
        opened(browser, port)
        browser.wait("document.querySelector('#log').innerText.includes('agent/b')", "the decisions")
        assert browser.run(marks) == {"agent/a": False, "agent/b": True}
