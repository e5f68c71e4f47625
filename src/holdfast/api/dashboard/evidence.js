// Evidence and impact of a problem that no gate explains, from what the page knows about its subject.

import { lasting, many, number, short } from "./dom.js";
import { frontends, frontendState, nameOf, rackOf, state, upOf } from "./state.js";

// A worker that stands still, and what waits for it meanwhile. What is programmed stays in any case.
const WAITS = {
  elector: "No server can be elected here; a leader elsewhere goes on.",
  syncer: "Changes of the inventory do not reach etcd. What is programmed stays.",
  "agent-status": "The inventory does not learn which agents are alive. What is programmed stays.",
  "endpoint-status": "The inventory does not learn which endpoints are up. What is programmed stays.",
  compaction: "etcd keeps its history and grows.",
  prober: "Health stands still: no backend comes up or goes down.",
  vips: "Frontends and backends stay as they are programmed.",
  announce: "Addresses stay announced as they are.",
  peers: "Routes of this host stay as they are; changes wait.",
  api: "This page and the API; nothing else.",
};

function ofHost(name) {
  const index = state.hosts?.names.indexOf(name) ?? -1;
  if (index < 0) return null;
  const letter = state.hosts.states[index], reason = state.hosts.reasons[name] ?? {}, rack = neighbours(name);
  const seen = reason.since ? `Last seen ${reason.since}, by its own clock.` : "";
  const why = reason.why ? `${reason.why[0].toUpperCase()}${reason.why.slice(1)}.` : "";
  const evidence = [why, seen, rack].filter(Boolean).join(" ");
  const impact = letter === "s" ? "Routes to its endpoints stay on every other host; their status is unknown." : "What is programmed on this host stays.";
  return [...(evidence ? [["Evidence", evidence]] : []), ["Impact", impact]];
}

export function neighbours(name) {
  const rack = rackOf(name), found = [];
  state.hosts.names.forEach((one, index) => rackOf(one) === rack && found.push(state.hosts.states[index]));
  const report = found.filter((letter) => letter !== "s").length;
  return found.length > 1 ? `${number(report)} of ${many(found.length, "host")} of rack ${rack} report.` : "";
}

function ofFrontend(name) {
  const one = frontends().find((each) => each.name === name);
  if (!one?.known) return null;
  const [up, of] = upOf(one), is = frontendState(one);
  const failed = one.pools.flat().filter((member) => member.state === "down");
  const errors = failed.map((member) => `${member.backend}: ${member.why || "down"}`);
  const impact = is === "dark" ? "No backend serves: clients get no answer." : is === "panic" ? "All backends get flows, healthy or not." : `${many(up, "backend")} serve${up === 1 ? "s" : ""} its flows.`;
  return [["Evidence", `${up} of ${of} are up.${errors.length ? ` ${errors.slice(0, 3).join("; ")}.` : ""}`], ["Impact", impact]];
}

function ofWorker(subject) {
  const daemons = state.status.daemons.filter((one) => subject === nameOf(subject) || one.role === subject.slice(0, subject.lastIndexOf("/")));
  const [daemon, worker] = daemons.flatMap((one) => one.workers.map((each) => [one, each])).find(([, each]) => each.name === nameOf(subject)) ?? [];
  if (!worker) return null;
  const pulse = worker.pulse_s === null ? "no pulse yet" : `pulse ${worker.pulse_s.toFixed(1)} s ago`;
  const facts = [`${daemon.role}/${worker.name}: ${worker.state}`, pulse, worker.backlog ? `${number(worker.backlog)} waiting` : "", worker.lag_s === null ? "" : `lag ${short(worker.lag_s)}`,
    worker.restarts ? `${many(worker.restarts, "restart")} in 24 h` : "", worker.trouble ? `${worker.trouble}${worker.trouble_ago_s === null ? "" : ` ${lasting(worker.trouble_ago_s)} ago`}` : ""];
  const impact = WAITS[worker.name];
  return [["Evidence", `${facts.filter(Boolean).join(", ")}.`], ...(impact ? [["Impact", impact]] : [])];
}

function ofFleet(subject) {
  if (subject === "leader") return [["Impact", "Nothing is written to etcd or to the inventory. Agents and balancers go on with what they have."]];
  if (subject === "fleet") return [["Impact", "No worker of any server, agent or balancer writes anything. What is programmed stays."]];
  if (subject === "store") return [["Impact", "Programmed state stays; changes wait until it answers."]];
  return null;
}

// Rows of label and text; none if nothing more is known than the problem says. A pause names its scope, as in `worker syncer`.
export function evidenceOf(subject) {
  const name = subject.replace(/^(worker|host|frontend)[ /]/, "");
  return ofFleet(name) ?? ofHost(name) ?? ofFrontend(name) ?? ofWorker(name) ?? [];
}
