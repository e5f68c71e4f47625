// What the page knows, as the stream delivered it, and small questions about it.

export const state = {
  status: null, fleet: null, frontends: null, hosts: null, decisions: [], trouble: {},
  live: false, heardAt: 0, lostAt: 0, lastId: "", statusAt: 0, admin: null, reader: null, locked: false,
};

export const servers = () => state.status?.servers ?? [];
// Servers whose daemons run here, also while their electors do not answer.
export const electorsHere = () => (state.status?.daemons ?? []).filter((one) => one.workers.some((each) => each.name === "elector"));
export const leader = () => servers().find((one) => one.phase === "leading");
export const problems = () => state.status?.problems ?? [];
export const needed = () => problems().filter((one) => one.needs_action);
export const fleetName = () => servers().find((one) => one.fleet)?.fleet?.slice(0, 12) ?? "";
export const seen = (worker) => state.status?.seen?.[worker];

// Closed gates of one worker: gate, reason, what opens it, operations, and the longest wait.
export function closedGates(isIt) {
  const found = new Map();
  for (const [worker, held] of Object.entries(state.status?.held ?? {})) {
    if (!isIt(worker)) continue;
    for (const one of held) {
      if (!one.gate) continue;
      const key = `${one.gate}\n${one.reason}\n${one.opens}`;
      const gate = found.get(key) ?? { gate: one.gate, reason: one.reason, opens: one.opens, held: 0, deletes: 0, since: 0, keys: [], worker };
      gate.held += 1;
      gate.deletes += one.op === "delete";
      gate.since = Math.max(gate.since, one.since_s);
      if (gate.keys.length < 3) gate.keys.push(`${one.op} ${one.key}`);
      found.set(key, gate);
    }
  }
  return [...found.values()];
}

export const rackOf = (name) => /^(.*?)[-_.]?\d+$/.exec(name)?.[1] || name;
export const daemonOf = (worker) => worker.slice(0, worker.lastIndexOf("/"));
export const nameOf = (worker) => worker.slice(worker.lastIndexOf("/") + 1);

export function workerOfLeader(name) {
  const leads = leader();
  const daemons = state.status?.daemons ?? [];
  const of = daemons.find((one) => leads && (one.role === leads.name || (one.role === "server" && servers().length === 1)));
  return of?.workers.find((one) => one.name === name);
}

export function hostCounts() {
  const counts = {};
  for (const letter of state.hosts?.states ?? "") counts[letter] = (counts[letter] ?? 0) + 1;
  return counts;
}

export const balancers = () => (state.frontends?.here ?? []).filter((one) => !one.error);
export const digests = () => {
  const found = Object.entries(state.frontends?.reports ?? {}).map(([name, one]) => [name, one.table]);
  for (const one of balancers()) if (!found.some(([name]) => name === one.name)) found.push([one.name, one.digests.table]);
  return found;
};
export function frontends() {
  const found = new Map();
  for (const balancer of balancers()) for (const one of balancer.frontends) if (!found.has(one.name)) found.set(one.name, { ...one, balancer });
  for (const [name, report] of Object.entries(state.frontends?.reports ?? {}))
    for (const [frontend, is] of Object.entries(report.frontends ?? {}))
      if (!found.has(frontend)) found.set(frontend, { name: frontend, state: is, vip: `on ${name}`, pools: [], elsewhere: name });
  return [...found.values()];
}
const backendsUp = (one) => one.pools.flat().filter((member) => member.state === "up").length;
export function frontendState(one) {
  if (one.paused) return "paused";
  if (one.panic) return "panic";
  if (one.state === "down") return "dark";
  if (one.state === "unknown") return "unknown";
  const active = one.pools[one.active_pool ?? 0] ?? [];
  return active.some((member) => member.state === "down") ? "degraded" : "serving";
}
export const upOf = (one) => [backendsUp({ pools: one.pools.slice(0, 1) }), (one.pools[0] ?? []).length];
