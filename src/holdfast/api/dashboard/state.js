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
const nameOfBalancer = (one) => one.reports_as || one.name;
export const digests = () => {
  const found = new Map(balancers().map((one) => [nameOfBalancer(one), one.digests.table]));
  for (const [name, one] of Object.entries(state.frontends?.reports ?? {})) found.set(name, found.get(name) ?? one.table);
  return [...found];
};

// A frontend as another machine's balancer reports it, in the form that the balancers here answer in.
function reported(on, name, is, report) {
  const one = report.details?.[name], pools = one?.pools ?? [];
  return {
    on, name, state: is, vip: one?.vip ?? `on ${on}`, elsewhere: on, known: Boolean(one), programmed: one ? one.programmed === true : undefined, panic: one?.panic === true,
    paused: one?.paused ? { who: one.paused } : null, active_pool: one?.active_pool ?? null, counts: pools.map((pool) => [pool.up, pool.total]),
    pools: pools.map((pool) => (pool.backends ?? []).map((each) => ({ ...each, backend: each.name, programmed: each.weight ?? null }))),
  };
}

function here(balancer, one) {
  const of = (member) => balancer.backends.find((each) => each.name === member.backend);
  const told = (member) => Object.values(of(member)?.checks ?? {}).map((each) => each.error).find(Boolean) ?? of(member)?.why ?? "";
  const pools = one.pools.map((pool) => pool.map((member) => ({ ...member, why: told(member), since_s: of(member)?.since_s ?? 0 })));
  return { ...one, balancer, on: nameOfBalancer(balancer), known: true, pools };
}

// Every frontend of the fleet once: as the balancer here sees it, else as the first that reports it; `others` has the rest.
export function frontends() {
  const found = new Map(), local = balancers();
  const add = (one) => (found.has(one.name) ? found.get(one.name).others.push(one) : found.set(one.name, { ...one, others: [] }));
  for (const balancer of local) for (const one of balancer.frontends) add(here(balancer, one));
  const away = Object.entries(state.frontends?.reports ?? {}).filter(([name]) => !local.some((one) => nameOfBalancer(one) === name));
  for (const full of [true, false])
    for (const [on, report] of away)
      for (const [name, is] of Object.entries(report.frontends ?? {}))
        if (Boolean(report.details?.[name]) === full) add(reported(on, name, is, report));
  return [...found.values()];
}

// State on one balancer.
export function stateOn(one) {
  if (one.paused) return "paused";
  if (one.panic) return "panic";
  if (one.state === "down") return "dark";
  if (one.state === "unknown") return "unknown";
  const active = one.pools[one.active_pool ?? 0] ?? [];
  return active.some((member) => member.state === "down") ? "degraded" : "serving";
}

// State on all balancers: dark only if it is dark everywhere, as `holdfast status` counts it.
const WORST = ["panic", "degraded", "dark", "unknown", "paused", "serving"];
export function frontendState(one) {
  const states = new Set([one, ...(one.others ?? [])].map(stateOn));
  if (states.size > 1 && states.has("dark")) states.add("degraded");
  return states.size === 1 ? [...states][0] : WORST.find((each) => states.has(each));
}

const rowOf = (member) => JSON.stringify([member.state, member.programmed ?? 0, member.configured]);
// Balancers that report another state or weight of a backend than `member`, those that agree with each other together.
export function differing(one, at, name, member) {
  const groups = new Map();
  for (const other of one.others ?? []) {
    const its = other.known ? other.pools[at]?.find((each) => each.backend === name) : null;
    if (!its || (member && rowOf(its) === rowOf(member))) continue;
    const group = groups.get(rowOf(its)) ?? { member: its, on: [] };
    group.on.push(other.on);
    groups.set(rowOf(its), group);
  }
  return [...groups.values()];
}
// Balancers that see a backend as the shown one does.
export const agreeing = (one, at, member) =>
  [one, ...(one.others ?? [])].filter((other) => { const its = other.known && other.pools[at]?.find((each) => each.backend === member.backend); return its && rowOf(its) === rowOf(member); }).map((other) => other.on);
// Backends of a pool that only other balancers name.
export const onlyElsewhere = (one, at) => {
  const own = new Set((one.pools[at] ?? []).map((each) => each.backend));
  return [...new Set((one.others ?? []).flatMap((other) => (other.pools[at] ?? []).map((each) => each.backend)))].filter((name) => one.known && !own.has(name));
};
const backendsUp = (pool) => pool.filter((member) => member.state === "up").length;
export const upOf = (one, at = 0) => one.counts?.[at] ?? [backendsUp(one.pools[at] ?? []), (one.pools[at] ?? []).length];
