// Vital signs, problems and the flow: what `holdfast status` says first.

import { evidenceOf } from "./evidence.js";
import { $, about, clock, command, day, h, icon, lasting, many, number, patch, put, tight } from "./dom.js";
import {
  closedGates, digests, electorsHere, fleetName, frontends, frontendState, hostCounts, leader, nameOf, needed, problems, seen, servers, state, workerOfLeader,
} from "./state.js";

const SIX = ["leader", "identity", "sync", "witness", "brake", "intent"];
const AGENT = ["identity", "sync", "brake", "dependents", "prefix", "path", "intent"];
const BALANCER = ["identity", "sync", "brake", "warm_up", "no_health", "intent"];
const STATUS = ["leader", "sync", "mass_loss"];

const vital = (label, big, small, ...facts) =>
  h("div", { class: "vital" }, h("div", { class: "lab" }, label), h("div", { class: "big" }, big, h("small", {}, small)), facts);
const facts = (...found) => h("div", { class: "facts" }, found.filter(Boolean).map((one) => (one instanceof Node ? one : h("span", {}, one))));
const marked = (kind, text, on = true) => h("span", { class: on ? kind : null }, text);

function leaderVital() {
  const leads = leader(), list = state.fleet?.servers ?? [];
  const known = leads?.name ?? list.find((one) => one.role === "leader")?.name ?? servers().find((one) => one.leader)?.leader;
  const term = leads?.term ?? list.find((one) => one.role === "leader")?.term;
  const followers = list.filter((one) => one.role !== "leader" && one.name !== known).map((one) => marked("warn", `${one.name} ${one.able ? "warm" : `cannot lead: ${one.why_not}`}`, !one.able));
  const left = state.live && leads ? leads.lease_s : null;
  const bar = h("b", { style: { transform: `scaleX(${left === null ? 0 : Math.min(1, left / leads.ttl_s)})` } });
  const meter = h("i", { role: "meter", "aria-label": "Lease left", "aria-valuemin": "0", "aria-valuemax": leads?.ttl_s ?? 0, "aria-valuenow": (left ?? 0).toFixed(1) }, bar, h("u", { title: "workers stop writing when a third is left" }));
  const lease = h("div", { class: "lease" }, meter, h("span", { class: "nw" }, left === null ? "lease not known" : `lease ${left.toFixed(1)} of ${leads.ttl_s.toFixed(0)} s`));
  const small = known ? `term ${number(term ?? 0)}${leads ? ` · ${lasting(leads.since_s)}` : ""}` : "nothing is written until a server is elected";
  return vital("Leader", known ? known : h("span", { class: "bad" }, "nobody"), small, lease, facts(...followers));
}

function storeVital() {
  const one = leader() ?? servers()[0];
  if (!one) return vital("Store", "not known", electorsHere().length ? "the elector here does not answer" : "no server runs here", facts(state.fleet?.complete ? "read by the API itself" : "the API has not read it yet"));
  if (!one.store) return vital("Store", h("span", { class: "bad" }, "away"), "programmed state stays", facts(one.store_error));
  const it = one.store;
  return vital("Store", h("span", { class: it.answering < it.members ? "warn" : null }, `${it.answering} of ${it.members}`), `etcd ${it.version}`,
    facts(`rev ${number(it.revision)}`, `round trip ${it.round_trip_ms.toFixed(0)} ms`, it.compacted_ago_s === null ? "not compacted yet" : `compacted ${about(it.compacted_ago_s)} ago`));
}

function hostsVital() {
  const counts = hostCounts(), total = state.hosts?.names.length ?? 0;
  if (!state.hosts?.complete) return vital("Hosts", "not known", "", facts("the reports are not read yet"));
  const shown = [["b", "behind", ""], ["s", "silent", "bad"], ["g", "gate closed", "bad"], ["f", "failing", "bad"], ["p", "paused", ""], ["d", "drained", ""]]
    .filter(([letter]) => counts[letter] || "bs".includes(letter)).map(([letter, word, kind]) => marked(kind, `${word} ${number(counts[letter] ?? 0)}`, Boolean(counts[letter])));
  return vital("Hosts", number(total), `at head ${number(counts.h ?? 0)}`, facts(...shown));
}

function endpointsVital() {
  const it = seen("endpoint-status");
  if (!it) return vital("Endpoints", "not known", "", facts("known where the leader runs"));
  const orphans = Object.values(it.orphans).reduce((sum, one) => sum + one, 0), { up = 0, down = 0, error = 0, unknown = 0 } = it.states;
  return vital("Endpoints", number(it.total), `up ${number(up)}`,
    facts(marked("bad", `down ${number(down)}`, down > 0), marked("bad", `error ${number(error)}`, error > 0), marked("warn", `unknown ${number(unknown)}`, unknown > 0), marked("warn", `without agent ${number(orphans)}`, orphans > 0)));
}

function vipsVital() {
  const states = frontends().map(frontendState), count = (...which) => states.filter((one) => which.includes(one)).length, found = digests();
  const same = found.filter(([, table]) => table === found[0][1]).length;
  if (!found.length && !states.length) return vital("VIPs", "0", "", facts("no balancer reports"));
  return vital("VIPs", number(states.length), `serving ${count("serving", "degraded", "panic", "paused")}`,
    facts(marked("warn", `degraded ${count("degraded", "panic")}`, count("degraded", "panic")), marked("bad", `dark ${count("dark")}`, count("dark")), count("unknown") ? marked("warn", `unknown ${count("unknown")}`) : null,
      marked("bad", same === found.length ? `tables equal on ${same} of ${many(found.length, "balancer")}` : `tables differ: equal on ${same} of ${found.length}`, same < found.length)));
}

export function showVitals() {
  patch($("vitals"), [leaderVital(), storeVital(), hostsVital(), endpointsVital(), vipsVital()]);
}

/* ---- problems ---- */
const HELD = /^held by (\S+) for [\d:]+: ([\s\S]*)$/;
const isCommand = (text) => /^(holdfast|sudo|systemctl|ps) /.test(text);
const since = (moment) => (Date.parse(state.status.at) - Date.parse(moment)) / 1000;
const commands = (one) => [["Look", one.commands.inspect], ["Release", one.commands.release], ["Fix", one.commands.fix]].filter(([, text]) => text);

function evidence(one, gate) {
  const held = closedGates((worker) => nameOf(worker) === one.subject).filter((each) => each.gate === gate);
  const total = held.reduce((sum, each) => sum + each.held, 0), deletes = held.reduce((sum, each) => sum + each.deletes, 0), only = deletes === total;
  if (!total) return null;
  const keys = held.flatMap((each) => each.keys).slice(0, 3).map((key) => (only ? key.replace(/^delete /, "") : key)).join(", ");
  const count = only ? many(total, "delete") : many(total, "change");
  return [`${count} held${only ? "" : `, ${many(deletes, "delete")} among them`}: ${keys}${total > 3 ? `, and ${number(total - 3)} more` : ""}`, count, Math.max(...held.map((each) => each.since))];
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

function problem(one, index) {
  const [, gate, reason] = HELD.exec(one.sentence) ?? [];
  const found = gate ? evidence(one, gate) : null;
  const shown = commands(one), told = shown.filter(([, text]) => !isCommand(text));
  const age = Math.max(since(one.since), found?.[2] ?? 0), began = Date.parse(state.status.at) - age * 1000;
  const mark = h("i", { class: "gl shut", "aria-hidden": "true" });
  const rows = [
    ...(gate ? [] : evidenceOf(one.subject)),
    found && ["Evidence", found[0]],
    gate && ["Impact", "What is programmed stays. What this gate does not hold is written as always."],
    gate && ["Gate", [h("span", { class: "gtag" }, mark, h("b", {}, gate), " is closed."), one.commands.release ? ` To release: ${one.commands.release}` : ""]],
    ...told.filter(() => !gate).map(([label, text]) => [label === "Release" ? "To release" : label, text]),
  ].filter(Boolean);
  const state_ = gate ? `held by ${gate}` : one.known ? "needs you" : "not known";
  const run = state.admin && /^holdfast (gate allow|resume) /.test(one.commands.release)
    ? h("button", { class: "btn go", "data-run": one.commands.release }, "Show the plan, then release …") : null;
  return h("article", { class: `prob${one.known ? "" : " unk"}`, tabindex: "-1", "data-key": `${one.subject} ${gate ?? one.sentence.slice(0, 12)}`, "aria-label": `Problem ${index + 1}: ${one.subject}` },
    h("span", { class: "n", "aria-hidden": "true" }, index + 1),
    h("div", { class: "body" }, h("h3", {}, h("b", {}, gate && found ? `The ${one.subject} holds ${found[1]}.` : one.subject), " ", gate ? sentence(reason) : one.sentence),
      h("div", { class: "pmeta" }, h("span", { class: "st" }, `${state_} ${lasting(age)}`), h("span", {}, `since ${clock(began)}`), h("span", { class: "mono t3" }, one.subject)),
      rows.length ? h("dl", { class: "kv" }, rows.map(([label, text]) => [h("dt", {}, label), h("dd", {}, text)])) : null),
    h("div", { class: "cmds" }, shown.filter(([, text]) => isCommand(text)).map(([label, text]) => command(label, text)), run ? h("div", { class: "act" }, run) : null));
}

export function showProblems() {
  if (!state.status) return;
  const urgent = needed(), rest = problems().filter((one) => !one.needs_action);
  put("r-needs", state.live ? clock(state.status.at) : `as of ${clock(state.status.at)}`);
  patch($("h-needs"), [state.live ? "Needs you" : "Needed you", urgent.length ? [" ", h("span", { class: "bad" }, urgent.length)] : null]);
  const well = state.status.exit_code === 0, waits = rest.some((one) => !one.known);
  const calm = h("div", { class: "allwell" }, icon(well ? "ok" : "unk"), h("div", {}, h("h3", {}, well ? "Nothing needs you." : waits ? "It cannot be told yet whether all is well." : "Nothing needs you."),
    h("p", { class: "t2" }, well ? allWell() : "What is not known yet is listed below.")));
  const self = h("details", { class: "self", open: waits && !urgent.length },
    h("summary", {}, h("span", { class: "ch" }, icon("ch")), "Handled by itself ", h("b", {}, rest.length)),
    h("ul", {}, alike(rest).map((one) => h("li", {}, h("b", {}, one.subjects), h("span", {}, one.sentence), h("span", { class: "t3 nw" }, lasting(one.age))))));
  patch($("problems"), [urgent.length ? urgent.map(problem) : calm, rest.length ? self : null]);
}

// Problems with the same sentence in one row, such as all workers while a fleet starts.
function alike(rest) {
  const found = new Map();
  for (const one of rest) found.set(one.sentence, [...(found.get(one.sentence) ?? []), one]);
  return [...found].map(([sentence_, all]) => {
    const names = [...new Set(all.map((one) => one.subject))], more = names.length - 3;
    return { sentence: sentence_, subjects: more > 1 ? `${names.slice(0, 3).join(", ")} and ${number(more)} more` : names.join(", "), age: Math.max(...all.map((one) => since(one.since))) };
  });
}

function allWell() {
  const total = state.hosts?.names.length ?? 0, at = leader()?.store?.revision;
  return `${many(total, "host")} ${total === 1 ? "reports" : "report"}, no gate is closed${at ? `, the store is at rev ${number(at)}` : ""}. Every worker here runs.`;
}

/* ---- flow ---- */
const worst = (gates, name) => gates.filter((one) => one.gate === name);

function gateNode(name, closed, after) {
  const held = closed.reduce((sum, one) => sum + one.held, 0), hosts = closed.reduce((sum, one) => sum + (one.hosts ?? 0), 0), is = closed.length > 0;
  const byWill = name === "intent";
  const what = hosts ? many(hosts, "host") : `${number(held)} held`;
  const state_ = is && !byWill ? "isshut dry" : after ? "dry" : "";
  return h("li", { class: `gate ${state_}${is && byWill ? "" : ""}`, title: closed.map((one) => `${one.reason}. To release: ${one.opens}`).join("\n") || `${name}: open` },
    h("div", { class: "rail" }, is && !byWill ? h("div", { class: "gl2" }) : null, h("i", { class: `gl ${is ? (byWill ? "part" : "shut") : ""}`, "aria-hidden": "true" }),
      is ? (byWill ? h("b", { class: "cnt" }, number(hosts || held)) : h("b", { class: "held" }, what)) : null),
    h("span", { class: "val" }, name.replace("_", "-")), h("span", { class: "sr" }, is ? `closed: ${what}` : "open"));
}

function lane(kind, title, sub, watch, diff, apply, names, closed, { one = false, back = false } = {}) {
  const extra = [...new Set(closed.map((each) => each.gate))].filter((each) => !names.includes(each));
  const all = [...names, ...extra], shut = all.findIndex((each) => each !== "intent" && worst(closed, each).length);
  const gates = all.map((each, index) => {
    const node = gateNode(each, worst(closed, each), shut >= 0 && index > shut);
    if (shut >= 0 && index < shut) node.classList.add("piled");
    return node;
  });
  const piled = shut >= 0 ? " piled" : "", dry = shut >= 0 ? " dry" : "";
  const box = (label, value) => h("div", { class: "node" }, h("span", { class: "box" }, label), h("span", { class: "val" }, value));
  return h("div", { class: `lane ${kind}` }, h("h3", {}, title, h("span", {}, sub)),
    h("div", { class: `pipe${one ? " one" : ""}${back ? " back" : ""}` }, h("div", { class: "seg lead" }), box("watch", watch), h("div", { class: "seg" }), box("diff", diff), h("div", { class: `seg grow${piled}` }), h("div", { class: "brk" }),
      h("ul", { class: `gates${all.length > 4 ? " stag" : ""}`, "aria-label": `Gates of ${title}` }, gates), h("div", { class: `seg${dry}` }), box("apply", apply), h("div", { class: `arrow${dry}` })));
}

const tank = (kind, title, big, ...rows) => h("div", { class: `tank ${kind}` }, h("h3", {}, title), h("div", { class: "big" }, big), rows.filter(Boolean).map((one) => h("p", {}, one)));
const lag = (worker) => (worker?.lag_s === null || worker?.lag_s === undefined ? "–" : `${tight(worker.lag_s)} lag`);

const ended = (text) => (/[.…]$/.test(text) ? text : `${text}.`);

function explainClosed(all, unknown) {
  const first = all.filter((one) => one.gate !== "intent").sort((a, b) => b.held - a.held)[0] ?? all[0];
  const text = first
    ? [h("b", {}, `${first.gate.replace("_", "-")} closed${first.since ? ` ${lasting(first.since)}` : ""}.`), ` ${first.hosts ? `On ${many(first.hosts, "host")} (${first.examples.join(", ")}): ` : `${many(first.held, "change")} held: `}${first.reason}. To release: ${ended(first.opens || "it opens by itself")}`]
    : unknown || "All gates are open. What differs is written at once.";
  return h("p", { class: `why o3 ${first ? "shut" : ""}` }, h("i", { class: `gl ${first ? (first.gate === "intent" ? "part" : "shut") : ""}`, "aria-hidden": "true" }), h("span", {}, text));
}

// A gate of which nothing is known is not an open one.
function unknownGates(work) {
  if (!leader()) return "No server that leads answers here: whether its gates are open is not known.";
  if (!work || /^(starting|restarting|gone)/.test(work.state)) return "The syncer has not said yet whether its gates are open.";
  return state.fleet ? "" : "The reports of the agents are not read yet: whether their gates are open is not known.";
}

export function showFlow() {
  if (!state.status) return;
  const of = (name) => closedGates((worker) => nameOf(worker) === name);
  const syncer = of("syncer"), status = [...of("agent-status"), ...of("endpoint-status")], vips = of("vips");
  const agents = [...(state.fleet?.agent_gates ?? []).map((one) => ({ ...one, held: one.hosts, since: 0 }))];
  const all = [...syncer, ...status, ...vips, ...agents], closed = all.filter((one) => one.gate !== "intent");
  const leads = leader(), store = leads?.store ?? servers()[0]?.store, endpoints = seen("endpoint-status"), totals = state.fleet?.totals;
  const work = workerOfLeader("syncer"), reports = [workerOfLeader("agent-status"), workerOfLeader("endpoint-status")];
  const waiting = reports.reduce((sum, one) => sum + (one?.backlog ?? 0), 0), oldest = Math.max(0, ...reports.map((one) => one?.lag_s ?? 0));
  const counts = hostCounts(), total = state.hosts?.names.length ?? 0, found = digests(), same = found.filter(([, table]) => table === found[0][1]).length;
  const vipsWorker = state.status.daemons.flatMap((one) => one.workers).find((one) => one.name === "vips");
  const silent = (counts.s ?? 0), held = totals?.counts?.held ?? 0;
  const unknown = unknownGates(work);
  put("r-flow", closed.length ? `${many(closed.length, "gate")} closed, ${many(closed.reduce((sum, one) => sum + one.held, 0), "change")} held` : unknown ? "not every gate is known" : "no gate closed");
  const kernel = h("div", { class: "tank o7" }, h("h3", {}, "kernel"), h("div", { class: "big" }, number(total - silent)), h("p", {}, many(total, "host")), h("p", {}, `${number(totals?.counts?.programmed ?? 0)} objects`), h("hr"),
    h("h3", { class: "k2" }, state.frontends?.here?.[0]?.dataplane ?? "balancers"), h("div", { class: "big" }, number(frontends().length)), h("p", {}, `${frontends().length === 1 ? "VIP" : "VIPs"}, ${many(found.length, "balancer")}`));
  const readBack = h("div", { class: "lane r3 o8" }, h("h3", {}, "reports", h("span", {}, "under a 90 s lease")), h("div", { class: "pipe one back" }, h("div", { class: "seg lead" }),
    h("div", { class: "node wide" }, h("span", { class: "box" }, "read back"), h("span", { class: "val" }, "every 30 s")), h("div", { class: "seg fill" }),
    h("div", { class: "node wider" }, h("span", { class: "box" }, `${number(total - silent)} of ${number(total)}`), h("span", { class: `val ${silent ? "bad" : ""}` }, silent ? `${many(silent, "host")} silent` : total ? "all report" : "no host is known")), h("div", { class: "seg fill" }), h("div", { class: "arrow" })));
  const grid = h("div", { class: "flow" },
    tank("o1", "inventory", endpoints ? number(endpoints.total) : "–", "endpoints", seen("agent-status") ? many(seen("agent-status").total, "host") : "known where the leader runs"),
    lane("o2", "syncer", leads ? `${leads.name}, leader` : "no leader here", lag(work), `${number(work?.backlog ?? 0)} differ`, work?.state.split(":")[0] ?? "–", SIX, syncer),
    explainClosed(all, unknown),
    lane("r3 o9", "agent-status, endpoint-status", "status back", `${number(waiting)} waiting`, `${tight(oldest)} lag`, workerOfLeader("agent-status")?.state.split(":")[0] ?? "–", STATUS, status, { one: true, back: true }),
    tank("o4", "etcd", store ? number(store.revision) : "–", store ? "revision" : null, totals ? many(totals.hosts, "host") : null, store ? `round trip ${store.round_trip_ms.toFixed(0)} ms` : "not reached", totals ? `${many(totals.unreadable, "bad key")}` : null),
    lane("o5", "agents", `${number(counts.h ?? 0)} of ${number(total)} at head`, totals ? many(totals.reports, "report") : "–", `${number(held)} held`, `${number(totals?.counts?.failed ?? 0)} failed`, AGENT, agents),
    lane("r2 o6", "balancers", found.length ? `${same} of ${found.length} equal${found[0] ? `, ${found[0][1].slice(0, 6)}` : ""}` : "none reports", lag(vipsWorker), `${number(vipsWorker?.backlog ?? 0)} differ`, vipsWorker?.state.split(":")[0] ?? "–", BALANCER, vips),
    readBack, kernel);
  const key = h("div", { class: "flowkey" }, h("span", { class: "idea" }, "watch → diff → gate → apply"), h("span", {}, h("i", { class: "rl two" }), "upper rail creates and updates, lower rail deletes"), h("span", {}, h("i", { class: "gl" }), "gate open"),
    h("span", {}, h("i", { class: "gl shut" }), "closed"), h("span", {}, h("i", { class: "gl part" }), "closed on purpose"), h("span", {}, h("i", { class: "rl p" }), "held changes"));
  patch($("lanes"), [grid, key]);
}

/* ---- header ---- */
export function showHeader() {
  const verdict = $("verdict"), code = state.status?.exit_code, count = needed().length, rest = problems().length - count;
  const [kind, image, text] = !state.live || code === undefined ? ["unk", "unk", state.status ? "Cannot tell" : "Connecting"] : count ? ["bad", "alert", `${number(count)} ${count === 1 ? "needs" : "need"} you`] : code === 0 ? ["ok", "ok", "All well"] : ["unk", "unk", "Cannot tell"];
  verdict.className = `verdict v-${kind}`;
  patch(verdict, [icon(image), text]);
  put("vsub", !state.live ? (count ? `${count} needed you at ${clock(state.status.at)}` : "") : rest ? `${number(rest)} handled by itself` : "");
  put("fleet", fleetName() || (state.status?.daemons ?? []).map((one) => one.role).slice(0, 3).join(", "));
  document.title = `${!state.live ? "? " : count ? `(${count}) ` : ""}Holdfast${fleetName() ? ` · ${fleetName()}` : ""}`;
  const view = leader() ?? servers()[0];
  put("seen", state.status ? `Holdfast ${state.status.version} · seen from ${state.status.served_by}${view ? ` (${view.name}, ${view.phase})` : ""}` : "");
}
