// Wiring of the page: messages of the stream to the sections, theme, keys, copying.

import { $, clean, clock, h, icon, lasting, patch, put } from "./dom.js";
import { setUpFolds } from "./fold.js";
import { setUpHosts, onCells, onHosts, refreshHost, showExceptions, showHost } from "./hosts.js";
import { showFlow, showHeader, showProblems, showVitals } from "./overview.js";
import { onDecisions, setUpEvents, showEvents, showIntents, showTerms } from "./records.js";
import { setUpSession } from "./session.js";
import { balancers, leader, servers, state } from "./state.js";
import { follow, retryIn } from "./stream.js";
import { paint, setUpVips, showVips } from "./vips.js";
import { showWorkers } from "./workers.js";

const THEMES = ["system", "light", "dark"];
const SECTIONS = ["needs", "flow", "workers", "hosts", "vips", "leadership", "intents", "events"];
const REFRESH_S = 15;
let theme = "system", at = -1, seconds = 0;

/* ---- messages ---- */
const SHOW = {
  status: (found) => { state.status = found; state.statusAt = performance.now(); showAll(); },
  fleet: (found) => { const before = state.fleet?.terms?.length; state.fleet = found; showTerms(); showIntents(); if (before !== found.terms.length) showEvents(); showWorkers(); showFigures(); },
  frontends: (found) => { state.frontends = found; showVips(); showFigures(); },
  hosts: (found) => { onHosts(found); showFigures(); },
  cells: (found) => { onCells(found); showFigures(); },
  history: (found) => onDecisions(found, { whole: true }),
  decisions: (found) => onDecisions(found, { whole: false }),
  trouble: (found) => { state.trouble = found; showFresh(); },
};

function showAll() {
  showHeader(); showVitals(); showProblems(); showFlow(); showWorkers();
  if (state.hosts) showExceptions();
  if (state.frontends && !balancers().length) showVips(); // reports change seldom, the ages of their states always
}

// Vital signs, problems and flow name figures of every document, so that none of them contradicts the section below.
function showFigures() {
  if (state.status) { showVitals(); showProblems(); showFlow(); }
}

function onChange() {
  document.body.classList.toggle("stale", !state.live);
  showHeader(); showVitals(); showProblems(); showFresh();
  if (state.live) refreshHost();
}

function showFresh() {
  const old = state.status ? (performance.now() - state.statusAt) / 1000 : null, from = (leader() ?? servers()[0])?.name ?? state.status?.served_by ?? "";
  const stuck = Object.entries(state.trouble).filter(([of]) => state[of]);
  const whole = state.live && !stuck.length;
  $("fresh").className = `fresh${whole ? " live" : ""}`;
  patch($("fresh"), state.live
    ? [h("span", { class: whole ? "dot" : "dot off" }), h("b", {}, whole ? "Live" : "Partly live"), h("span", { class: "age nw", "aria-hidden": "true" }, old === null ? "" : `${old.toFixed(0)} s · ${clean(from)}`)]
    : [h("span", { class: "dot off" }), h("b", {}, state.status ? "Reconnecting" : "Connecting"), h("span", { class: "age nw" }, state.status ? `in ${retryIn()} s` : "")]);
  const cut = !state.live && state.status;
  $("banner").hidden = !cut && whole;
  if (state.live && !whole) patch($("banner"), [icon("alert"), h("div", {}, h("b", {}, `Not up to date: ${stuck.map(([of]) => of).join(", ")}.`), ` ${clean(stuck.map(([, why]) => why).join("; "))}. It is shown as it was last read.`)]);
  if (!cut) return;
  patch($("banner"), [icon("alert"), h("div", {}, h("b", {}, `This page lost the API ${lasting((Date.now() - state.lostAt) / 1000)} ago.`), ` Everything below is as of ${clock(state.status.at)} and does not change. The fleet goes on without this page.`), h("button", { class: "btn", id: "retry" }, "Retry now")]);
}

/* ---- theme ---- */
function showTheme() {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  patch($("btheme"), [icon(theme)]);
  $("btheme").setAttribute("aria-label", `Theme: ${theme}. Change`);
  $("btheme").title = `Theme: ${theme}`;
  if (state.frontends) { showVips(); paint(); }
}

function nextTheme() {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  try { localStorage.setItem("holdfast-theme", theme); } catch { /* a private window keeps none */ }
  showTheme();
}

/* ---- copying ---- */
async function copy(button) {
  const text = button.dataset.copy, shown = button.querySelector("span");
  try { await navigator.clipboard.writeText(text); } catch { return put("say", `Select and copy: ${text}`); }
  button.classList.add("done");
  shown.textContent = "Copied";
  put("say", `Copied ${text}`);
  setTimeout(() => { button.classList.remove("done"); shown.textContent = "Copy"; }, 1600);
}

/* ---- keys ---- */
function jump(step) {
  const found = [...document.querySelectorAll(".prob")];
  if (!found.length) return;
  at = (at + step + found.length) % found.length;
  found[at].focus();
  found[at].scrollIntoView({ block: "nearest" });
}

function onKey(event) {
  const { key, target } = event;
  if (key === "Escape") {
    $("tip").classList.remove("on");
    if (target.id === "hf" || target.id === "ef") { target.value = ""; target.dispatchEvent(new Event("input")); target.blur(); }
    return;
  }
  if (!$("kon").checked || event.ctrlKey || event.metaKey || event.altKey || /INPUT|TEXTAREA|SELECT/.test(target.tagName) || document.querySelector("dialog[open]")) return;
  if (key === "/" || key === "e") { event.preventDefault(); $(key === "/" ? "hf" : "ef").focus(); }
  else if (key === "t") nextTheme();
  else if (key === "?") $("keys").showModal();
  else if (key === "n") jump(1);
  else if (key === "p") jump(-1);
  else if (key === "c") document.activeElement.closest?.(".prob")?.querySelector(".copy")?.click();
  else if (key >= "1" && key <= "8") { const section = $(SECTIONS[key - 1]); section.scrollIntoView(); section.focus({ preventScroll: true }); }
}

/* ---- start ---- */
try { theme = localStorage.getItem("holdfast-theme") ?? "system"; } catch { /* a private window keeps none */ }
if (!THEMES.includes(theme)) theme = "system";
setUpHosts();
setUpFolds(() => { showWorkers(); showHost(); });
setUpVips();
setUpEvents();
setUpSession(() => stream.retry());
showTheme();
$("btheme").addEventListener("click", nextTheme);
$("bkeys").addEventListener("click", () => $("keys").showModal());
matchMedia("(prefers-color-scheme:dark)").addEventListener("change", showTheme);
document.addEventListener("keydown", onKey);
const stream = follow((name, found) => SHOW[name](found), onChange);
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
  if (event.target.id === "retry") stream.retry();
});
setInterval(() => {
  showFresh();
  if (state.live && ++seconds % REFRESH_S === 0) refreshHost();
}, 1000);
