// Terms, intents and events: what happened, and what operators asked for.

import { $, clean, command, day, h, lasting, many, number, patch, put } from "./dom.js";
import { servers, state } from "./state.js";

const WEEK_S = 7 * 86400;
// The successor records the end of a term whose leader died, at the moment when it leads itself: that is no gap.
const KNOWN_GAP_S = 0.1;
const PLANNED = /stopped|asked|step|restart|upgrade/i;

/* ---- terms ---- */
export function showTerms() {
  const terms = state.fleet?.terms ?? [], now = Date.parse(state.status?.at ?? Date()), latest = terms.at(-1);
  if (!terms.length) {
    put("r-leadership", "");
    return patch($("terms"), [h("p", { class: "none" }, state.fleet ? "No term is recorded yet." : "Terms are recorded in the store; the API has not read it.")]);
  }
  const from = Math.max(now - WEEK_S * 1000, Math.min(...terms.map((one) => Date.parse(one.began)))), span = Math.max(60_000, now - from), at = (moment) => (Math.max(0, Date.parse(moment) - from) / span) * 100;
  const recent = terms.filter((one) => !one.ended || Date.parse(one.ended) >= from), names = [...new Set([...servers().map((one) => one.name), ...(state.fleet?.servers ?? []).map((one) => one.name), ...recent.map((one) => one.name)])].sort();
  put("r-leadership", `${latest.ended ? "nobody leads" : `term ${number(latest.term)}`} · ${many(recent.length, "term")} in ${lasting(span / 1000)}`);
  const bar = (one) => {
    const left = at(one.began), wide = (one.ended ? at(one.ended) : 100) - left;
    return h("div", { class: `term ${one.ended ? "" : "now"} ${wide < 8 ? "thin" : ""}`, style: { left: `${left.toFixed(2)}%`, width: `${Math.max(0.3, wide).toFixed(2)}%` }, title: `term ${number(one.term)}: ${one.ended ? one.why : "leads"}` }, wide < 8 ? "" : number(one.term), one.ended ? h("i", { class: `e ${PLANNED.test(one.why) ? "" : "hard"}` }) : null);
  };
  const rows = names.map((name) => h("div", { class: "row" }, h("span", { class: "mono" }, name), h("div", { class: "track" }, recent.filter((one) => one.name === name).map(bar))));
  const table = [...terms].reverse().slice(0, 5).map((one, index, list) => {
    const next = list[index - 1], gap = one.ended && next ? (Date.parse(next.began) - Date.parse(one.ended)) / 1000 : null, hard = one.ended && !PLANNED.test(one.why);
    return h("tr", { "data-key": one.term }, h("td", { class: "mono" }, number(one.term)), h("td", {}, one.name), h("td", { class: "mono t2 c-beg nw" }, day(one.began)), h("td", { class: "num" }, lasting(((one.ended ? Date.parse(one.ended) : now) - Date.parse(one.began)) / 1000)),
      h("td", {}, one.ended ? [hard ? h("i", { class: "sd wait mark", role: "img", "aria-label": "unplanned" }) : null, one.why || "not recorded", gap !== null && gap >= (hard ? KNOWN_GAP_S : 0) ? h("div", { class: "t3 of" }, `${gap.toFixed(1)} s without a leader`) : null] : "it leads"));
  });
  patch($("terms"), [h("div", { class: "tl", "aria-hidden": "true" }, rows, h("div", { class: "axis" }, h("span", {}, `${lasting(span / 1000)} ago`), h("span", {}, "now"))),
    h("table", { class: "tt" }, h("thead", {}, h("tr", {}, h("th", {}, "Term"), h("th", {}, "Server"), h("th", { class: "c-beg" }, "Began"), h("th", { class: "num" }, "Lasted"), h("th", {}, "Ended because"))), h("tbody", {}, table))]);
}

/* ---- intents ---- */
const scopeOf = (one) => (one.scope.name ? `${one.scope.target} ${one.scope.name}` : one.scope.target);
function ending(one) {
  const scope = scopeOf(one);
  if (one.what === "pause") return one.scope.target === "backend" ? `holdfast resume backend ${one.scope.name}` : `holdfast resume ${scope}`;
  if (one.what === "drain") return `holdfast undrain ${scope}`;
  if (one.what === "disable") return `holdfast enable backend ${one.scope.name}`;
  if (one.what === "allow") return `holdfast gate revoke ${one.scope.name}/brake`;
  if (one.what === "weight") return `holdfast weight backend ${one.scope.name}`;
  return "";
}

function flowsOf(one) {
  const drain = one.what === "drain" ? (state.fleet?.drains ?? []).find((each) => each.host === one.scope.name) : null;
  if (!drain) return "";
  const left = Object.entries(drain.flows).map(([name, flows]) => (flows === null ? `${name} does not count flows` : `${many(flows, "flow")} at ${name}`));
  return `; ${[...left, ...drain.waiting.map((name) => `${name} has not counted yet`)].join(", ") || "no balancer reports"}`;
}

export function showIntents() {
  const found = state.fleet?.intents ?? state.status?.intents ?? [];
  put("r-intents", found.length ? `${found.length} in force` : "none in force");
  patch($("asked"), found.length ? found.map((one) => {
    const left = one.until ? (Date.parse(one.until) - Date.parse(state.status?.at ?? Date())) / 1000 : null;
    return h("li", { "data-key": `${one.what} ${scopeOf(one)}` }, h("div", { class: "h1" }, h("span", {}, h("b", {}, one.what[0].toUpperCase() + one.what.slice(1)), " ", h("code", {}, `${scopeOf(one)}${one.weight === undefined || one.weight === null ? "" : ` = ${one.weight}`}`)), h("span", { class: "r" }, left === null ? "until lifted" : `until ${one.until.slice(11, 19)}Z, ${lasting(left)} left`)),
      h("div", { class: "t2" }, `${one.who}: “${one.why}”${flowsOf(one)}`), ending(one) ? command("End", ending(one)) : null,
      state.admin && one.what === "pause" ? h("div", { class: "act" }, h("button", { class: "btn go", "data-run": `holdfast resume ${scopeOf(one)}` }, "Resume …")) : null,
      state.admin && one.what === "drain" ? h("div", { class: "act" }, h("button", { class: "btn go", "data-run": `holdfast undrain ${scopeOf(one)}` }, "Undrain …")) : null);
  }) : [h("li", { class: "t2" }, "No pause, drain, weight or allowance is in force.")]);
}

/* ---- events ---- */
const KINDS = ["all", "gate", "leader", "syncer", "host", "agent", "vip", "worker", "store", "intent"];
let kind = "all", following = true, frozen = null, newest = "";

function kindOf(one) {
  if (one.outcome === "held" || one.gate) return "gate";
  if (one.outcome === "asked") return "intent";
  if (one.worker === "elector" || one.term_event) return "leader";
  if (one.worker === "supervisor" || one.op === "worker") return "worker";
  if (/^(agent|endpoint)-status/.test(one.worker)) return "host";
  if (/^(vips|announce|prober)/.test(one.worker)) return "vip";
  if (/^(agent|peers)/.test(one.worker)) return "agent";
  if (/^(compaction|etcd)/.test(one.worker)) return "store";
  return "syncer";
}
const became = (sentence_) => sentence_.split("→").at(-1).split(/[:)]/)[0];
const markOf = (one) => (one.outcome === "failed" || /\bdown\b|silent/.test(became(one.sentence)) ? "down" : one.outcome === "held" ? "held" : /hung|stalled|exited|ended/.test(one.outcome) ? "wait" : "");

// Terms as events, unless the decisions of an elector here tell of them.
function terms() {
  const told = state.decisions.filter((one) => /(^|\/)elector$/.test(one.worker)).map((one) => one.sentence);
  const isTold = (name, does, term) => told.some((one) => one.startsWith(`${name} ${does}, term ${term}:`));
  return (state.fleet?.terms ?? []).flatMap((one) => [
    isTold(one.name, "leads", one.term) ? null : { time: one.began, worker: "elector", op: "lead", key: one.name, outcome: "applied", sentence: `Leads, term ${number(one.term)}.`, term_event: true },
    one.ended && !isTold(one.name, "no longer leads", one.term) ? { time: one.ended, worker: "elector", op: "end", key: one.name, outcome: PLANNED.test(one.why) ? "applied" : "ended", sentence: `Term ${number(one.term)} ended: ${one.why || "not recorded"}.`, term_event: true } : null,
  ]).filter(Boolean);
}

export function showEvents() {
  $("kinds").className = "chips";
  patch($("kinds"), KINDS.map((one) => h("button", { class: "chip", "data-k": one, "aria-pressed": String(one === kind) }, one)));
  const all = frozen ?? [...state.decisions, ...terms()].sort((a, b) => (a.time < b.time ? 1 : -1));
  const wanted = $("ef").value.trim().toLowerCase();
  const shown = all.filter((one) => (kind === "all" || kindOf(one) === kind) && (!wanted || `${one.key} ${one.sentence} ${one.worker} ${one.op}`.toLowerCase().includes(wanted))).slice(0, 200);
  const oldest = all.at(-1);
  put("r-events", oldest ? `${number(all.length)} since ${day(oldest.time)}` : "");
  patch($("log"), shown.length ? shown.map((one) => {
    const mark = markOf(one);
    return h("li", { "data-key": `${one.time}${one.key}${one.op}`, class: newest && one.time > newest ? "new" : null }, h("time", {}, one.time.slice(11, 23)), mark ? h("i", { class: `sd ${mark}`, role: "img", "aria-label": "attention" }) : h("i"), h("span", { class: "k" }, kindOf(one)), h("span", { class: "o", title: one.key }, one.key), h("span", { class: "m" }, sentence(one)));
  }) : [h("li", { class: "t2" }, "No event matches.")]);
  newest = all[0]?.time ?? "";
}
// A sentence that begins with what was done needs no second word for it.
const DONE = /^(added|created|deleted|ended|held|released|replaced|restored|up|down|unknown|\S+ →)\b/i;
const sentence = (one) => {
  const told = one.term_event || one.op === "lead" || DONE.test(one.sentence) || one.sentence.startsWith(one.op) ? one.sentence : `${one.op === "hold" ? "held" : one.op}: ${one.sentence}`;
  const shown = /^[a-z]+\b(?![-_./\d])(?! →)/.test(told) ? `${told[0].toUpperCase()}${told.slice(1)}` : told;
  return `${shown}${one.count > 1 && !told.includes(" more)") ? ` (${many(one.count, "object")})` : ""}`;
};

export function onDecisions(found, { whole }) {
  state.decisions = whole ? found : [...state.decisions, ...found].slice(-400);
  showEvents();
}

export function setUpEvents() {
  $("ef").addEventListener("input", showEvents);
  $("follow").addEventListener("click", () => {
    following = !following;
    frozen = following ? null : [...state.decisions, ...terms()].sort((a, b) => (a.time < b.time ? 1 : -1));
    $("follow").setAttribute("aria-pressed", String(following));
    put("follow", following ? "Pause stream" : "Follow stream");
    showEvents();
  });
  document.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-k]");
    if (chip) { kind = chip.dataset.k; showEvents(); }
  });
}
