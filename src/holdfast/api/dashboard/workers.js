// Daemons with their workers: pulse, state, backlog, lag and restarts.

import { $, clean, h, lasting, many, number, patch, put, short } from "./dom.js";
import { foldedClass, unfold } from "./fold.js";
import { electorsHere, servers, state } from "./state.js";

const MOST = 20;

function mark(worker) {
  if (/^(held|refused|failing|crash)/.test(worker.state) || worker.crash_looping) return ["held", "bad"];
  if (/^(waiting|starting|restarting|due|gone)/.test(worker.state)) return ["wait", ""];
  if (/^paused/.test(worker.state)) return ["pause", ""];
  if (/^(following|warm|idle|completed)/.test(worker.state)) return ["idle", "t2"];
  return ["", ""];
}

function row(worker, name = worker.name) {
  const [dot, text] = mark(worker), trouble = worker.trouble
    ? h("div", { class: "sub" }, `${worker.trouble}${worker.back_after_s === null ? "" : `, back in ${short(worker.back_after_s)}`}${worker.trouble_ago_s === null ? "" : `, ${lasting(worker.trouble_ago_s)} ago`}`) : null;
  const late = worker.pulse_s !== null && worker.pulse_s > 3;
  return h("tr", { "data-key": name }, h("td", {}, name, trouble), h("td", { class: `num ${late ? "warn" : "t2"}` }, worker.pulse_s === null ? "–" : `${worker.pulse_s.toFixed(1)} s`),
    h("td", {}, h("span", { class: `st ${text}`, title: worker.state }, h("i", { class: `sd ${dot}`, "aria-hidden": "true" }), brief(worker.state))),
    h("td", { class: `num ${worker.backlog ? "" : "t3"}` }, worker.backlog === null ? "–" : number(worker.backlog)),
    h("td", { class: `num ${worker.lag_s === null ? "t3" : ""}` }, short(worker.lag_s)), h("td", { class: `num ${worker.restarts ? "" : "t3"}` }, worker.restarts));
}

// A follower with a worker in trouble is not folded away.
const isWell = (worker) => mark(worker)[1] !== "bad" && !worker.trouble;
const brief = (text) => (clean(text).length > 46 ? `${clean(text).slice(0, 45)}…` : text);
const head = () => h("thead", {}, h("tr", {}, h("th", {}, "Worker"), h("th", { class: "num" }, "Pulse"), h("th", {}, "State"), h("th", { class: "num" }, "Backlog"), h("th", { class: "num" }, "Lag"),
  h("th", { class: "num" }, h("abbr", { title: "Restarts in 24 hours", "aria-label": "Restarts in 24 hours" }, h("span", { class: "wd" }, "Restarts"), h("span", { class: "nd", "aria-hidden": "true" }, "↻")))));

function card(name, role, note, rows, foldable = false) {
  return h("article", { class: foldable ? foldedClass("panel srv", name) : "panel srv", "data-key": name }, h("header", {}, h("h3", {}, name), role ? h("span", { class: `role ${role === "leader" ? "lead" : ""}` }, role) : null, h("span", { class: "r" }, note), foldable ? unfold(name, "Workers") : null),
    h("table", {}, head(), h("tbody", {}, rows)));
}

function roleOf(daemon) {
  const server = servers().find((one) => one.name === daemon.role) ?? (daemon.role === "server" ? servers()[0] : undefined);
  if (!server && daemon.role.startsWith("lb-")) return "balancer";
  if (!server) return (state.fleet?.servers ?? []).find((one) => one.name === daemon.role)?.role ?? "";
  return server.phase === "leading" ? "leader" : server.phase === "following" ? "follower" : server.phase;
}

function elsewhere(one) {
  return h("article", { class: "panel srv", "data-key": one.name }, h("header", {}, h("h3", {}, one.name), h("span", { class: `role ${one.role === "leader" ? "lead" : ""}` }, one.role), h("span", { class: "r" }, `${one.version || "version not known"} · on ${one.host}`)),
    h("p", { class: "none" }, one.able ? `Reports that it can lead; lag ${short(one.lag_s)}. Its workers: holdfast status on ${one.host}.` : `Cannot lead: ${one.why_not}`));
}

export function showWorkers() {
  if (!state.status) return;
  const daemons = state.status.daemons, all = daemons.flatMap((one) => one.workers), restarts = all.reduce((sum, one) => sum + one.restarts, 0);
  const running = all.filter((one) => ["running", "completed"].includes(one.phase)).length;
  put("r-workers", `${running} of ${all.length} run · ${many(restarts, "restart")} in 24 h`);
  const agents = daemons.filter((one) => one.workers.some((each) => each.name === "peers")), others = daemons.filter((one) => !agents.includes(one));
  others.sort((a, b) => rank(a) - rank(b));
  const cards = others.map((one) => card(one.role, roleOf(one), `${one.version} · pulse ${short(one.supervisor_pulse_s)}`, one.workers.map((worker) => row(worker)), roleOf(one) === "follower" && one.workers.every(isWell)));
  if (agents.length) cards.push(card(agents.length === 1 ? agents[0].role : "agents here", agents.length === 1 ? "agent" : "", many(agents.length, "agent"), agents.slice(0, MOST).flatMap(ofAgent)));
  const local = new Set([...servers().map((one) => one.name), ...electorsHere().map((one) => one.role)]);
  for (const one of state.fleet?.servers ?? []) if (!local.has(one.name)) cards.push(elsewhere(one));
  patch($("daemons"), cards);
}

// The worker that reconciles; others of an agent only if something is wrong with them.
const ofAgent = (one) => one.workers.filter((each) => each.name === "peers" || mark(each)[0] !== "").map((each) => row(each, each.name === "peers" ? one.role : `${one.role} ${each.name}`));
const rank = (one) => ({ leader: 0, follower: 1 })[roleOf(one)] ?? (servers().some((each) => each.name === one.role) ? 2 : roleOf(one) === "balancer" ? 3 : 4);
