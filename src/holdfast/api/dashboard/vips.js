// VIPs: pools, weights, shares, probe latencies, and the bucket table as a picture.

import { $, clean, h, lasting, many, number, patch, put, s } from "./dom.js";
import { agreeing, differing, digests, frontends, frontendState, onlyElsewhere, state, stateOn, upOf } from "./state.js";

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const NONE = 65535;
let chosen = "", table = null, mode = "table", cursor = 0, wantedFor = "";

const colours = () => [0, 1, 2, 3, 4].map((one) => getComputedStyle(document.documentElement).getPropertyValue(`--b${one}`).trim());
const rgb = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) || 0);
const ink = (colour) => (rgb(colour).reduce((sum, one, at) => sum + one * [0.299, 0.587, 0.114][at], 0) > 128 ? "#0d1110" : "#fff");
const current = () => frontends().find((one) => one.name === chosen) ?? frontends()[0];
const rate = (one) => Object.values(one.balancer?.traffic?.[one.name] ?? {}).reduce((sum, each) => sum + each, 0);
const flows = (one) => (rate(one) ? `${number(Math.round(rate(one)))} flows/s` : "");

const names = (all) => (all.length > 3 ? `${all.slice(0, 3).join(", ")} and ${all.length - 3} more` : all.join(", "));
const STATE = { dark: "bad", panic: "bad", degraded: "warn" };
const DOT = { dark: "down", degraded: "wait", panic: "held", unknown: "wait", paused: "pause" };

// States on the balancers, where they differ: "lb-2: dark".
function unlike(one) {
  const found = new Map();
  for (const each of [one, ...one.others]) found.set(stateOn(each), [...(found.get(stateOn(each)) ?? []), each.on]);
  return found.size < 2 ? "" : [...found].map(([is, on]) => `${is} on ${names(on)}`).join("; ");
}

function listed(one, is) {
  const is_ = frontendState(one), [up, of] = upOf(one), apart = unlike(one);
  return h("li", { "data-key": one.name }, h("button", { "data-v": one.name, "aria-pressed": String(is) }, h("b", {}, one.name), h("span", { class: `st ${STATE[is_] ?? "t2"}` }, h("i", { class: `sd ${DOT[is_] ?? ""}`, "aria-hidden": "true" }), is_),
    h("span", { class: "num lab2" }, one.known ? `${up} of ${of}` : ""), h("code", { class: "addr" }, one.vip), h("span", { class: "lab2 num span2" }, flows(one)), apart ? h("span", { class: "warn apart" }, apart) : null));
}

function spark(values, down) {
  const good = values.filter((one) => one !== null), top = Math.max(1, ...good) * 1.6, step = 92 / 99, from = 99 - (values.length - 1);
  const points = values.map((one, at) => (one === null ? null : `${((from + at) * step).toFixed(1)},${(20 - (one / top) * 17).toFixed(1)}`)).filter(Boolean).join(" ");
  const crosses = values.map((one, at) => (one === null ? (from + at) * step : null)).filter((one) => one !== null).slice(-3);
  return s("svg", { class: "spark", viewBox: "0 0 92 22", "aria-hidden": "true" }, s("polyline", { points }), down ? crosses.map((x, at) => { const place = 89 - (crosses.length - 1 - at) * 5.5; return s("path", { class: "x", d: `M${place - 2} 8l4 4m0-4l-4 4` }); }) : null);
}

function lastSample(one, member, samples) {
  if (!one.balancer) return h("span", { class: "t3" }, `measured on ${one.on}`);
  if (!samples.length) return h("span", { class: "t3" }, "not measured");
  const last = samples.at(-1);
  return h("span", { class: "lat" }, spark(samples, member.state === "down"), h("span", { class: "t2 nw" }, last === null ? "failed" : `${last < 10 ? last.toFixed(1) : last.toFixed(0)} ms`));
}

const agesOf = (member) => (member.since ? (Date.parse(state.status?.at ?? member.since) - Date.parse(member.since)) / 1000 : member.since_s);

// Weight and state of a backend on one balancer, as two cells.
function weightAndState(member, serves) {
  const down = member.state === "down", weight = member.programmed ?? 0, age = agesOf(member);
  const dot = { up: "", down: "down", paused: "pause", disabled: "pause", unknown: "wait" }[member.state] ?? "idle", standby = !serves && member.state === "up";
  const shown = standby ? h("span", { class: "st t2" }, h("i", { class: "sd idle", "aria-hidden": "true" }), "standby") : h("span", { class: `st ${down ? "bad" : ""}` }, h("i", { class: `sd ${dot}`, "aria-hidden": "true" }), `${member.state}${member.state === "up" || age === undefined ? "" : ` ${lasting(age)}`}`);
  return [h("td", { class: "num" }, weight, weight === member.configured ? null : h("div", { class: "t3 of" }, `of ${member.configured}`)),
    h("td", {}, shown, h("div", { class: `mono of ${down ? "bad" : "t3"}`, title: member.why ?? "" }, (member.why ?? "").slice(0, 60)))];
}

// Row of a backend on balancers that see it in another way.
function unlikeRow(name, { member, on }, serves) {
  return h("tr", { "data-key": `${name} on ${on[0]}`, class: "apart" }, h("td", {}, h("span", { class: "adr warn" }, `${name} on ${names(on)}`)), weightAndState(member, serves), h("td", { class: "c-lat" }), h("td", {}));
}

function backend(one, member, letter, colour, total, serves, on) {
  const it = one.balancer?.backends.find((each) => each.name === member.backend), checks = Object.values(it?.checks ?? {});
  const samples = checks.map((each) => one.balancer.probes[each.target]).find(Boolean) ?? [];
  const buckets = one.balancer?.buckets[one.name]?.[member.address] ?? 0, measured = one.balancer?.traffic?.[one.name]?.[member.backend] ?? 0, sum = rate(one);
  const share = sum ? (measured / sum) * 100 : total ? (buckets / total) * 100 : 0;
  const part = one.balancer ? [h("div", { class: "share" }, h("span", { class: `num ${buckets ? "" : "t3"}` }, `${share.toFixed(1)} %`), h("i", { "aria-hidden": "true" }, h("b", { style: { width: `${share.toFixed(1)}%`, background: colour } }))), h("div", { class: "t3 of" }, many(buckets, "bucket"))] : h("span", { class: "t3" }, "–");
  return h("tr", { "data-key": member.backend }, h("td", {}, h("span", { class: "st" }, h("span", { class: `sw ${buckets ? "" : "none"}`, style: { background: colour, color: ink(colour) }, "aria-hidden": "true" }, letter), h("b", { class: "m" }, member.backend)), h("div", { class: "t3 mono adr" }, member.address), on ? h("div", { class: "warn adr" }, `on ${on}`) : null),
    weightAndState(member, serves), h("td", { class: "c-lat" }, lastSample(one, member, samples)), h("td", {}, part));
}

function pools(one) {
  if (!one.known) return [h("p", { class: "t2" }, `Its pools are known to ${one.on}: holdfast explain frontend ${one.name}, there.`)];
  const palette = colours(), buckets = one.balancer?.buckets[one.name] ?? {}, total = Object.values(buckets).reduce((sum, each) => sum + each, 0), order = Object.keys(buckets);
  const bodies = one.pools.map((pool, at) => {
    const serves = at === one.active_pool, [up, of] = upOf(one, at), left = of - pool.length;
    const note = serves ? ` · serves, ${up} of ${of} up` : one.active_pool === null ? " · does not serve" : " · stands by, weight 0 while a pool above serves";
    const rows = pool.flatMap((each) => {
      const place = order.indexOf(each.address), others = differing(one, at, each.backend, each);
      return [backend(one, each, place < 0 ? "–" : LETTERS[place % 26], place < 0 ? "#888888" : palette[place % 5], total, serves, others.length ? names(agreeing(one, at, each)) : ""), others.map((group) => unlikeRow(each.backend, group, serves))];
    });
    const missing = onlyElsewhere(one, at).flatMap((name) => differing(one, at, name, null).map((group) => unlikeRow(name, group, serves)));
    return h("tbody", { "data-key": `pool ${at}` }, h("tr", { class: "ph" }, h("td", { colspan: "5" }, h("b", { class: "m" }, `Pool ${at + 1}`), note)), rows, missing, left > 0 ? h("tr", {}, h("td", { colspan: "5", class: "t2" }, `and ${many(left, "backend")}: holdfast explain frontend ${one.name}, on ${one.on}`)) : null);
  });
  const column = rate(one) ? "New flows" : "Share of buckets";
  return [h("table", { class: "pool" }, h("thead", {}, h("tr", {}, h("th", {}, "Backend"), h("th", { class: "num" }, "Weight"), h("th", {}, "State"), h("th", { class: "c-lat" }, "Latency, 5 min"), h("th", {}, column))), bodies)];
}

// Balancers of a frontend: whose view is shown, and which others have it.
function seenOn(one) {
  const all = [one, ...one.others].map((each) => each.on);
  if (!one.elsewhere && all.length === 1) return null;
  return h("span", { class: "t2" }, `${one.elsewhere ? "as reported by" : "as seen by"} ${one.on}${all.length > 1 ? `; also on ${names(all.slice(1))}` : ""}`);
}

export function showVips() {
  const all = frontends(), one = current(), states = all.map(frontendState), bad = states.filter((each) => ["degraded", "panic", "dark"].includes(each)).length;
  const errors = (state.frontends?.here ?? []).filter((each) => each.error);
  put("r-vips", all.length ? `${states.filter((each) => each !== "dark" && each !== "unknown").length} serving${bad ? `, ${bad} degraded` : ""}` : "");
  if (!one) {
    patch($("vlist"), [h("li", { class: "none" }, errors.length ? `${errors[0].name} does not answer: ${errors[0].error}` : "No balancer runs here, and none reports to etcd.")]);
    patch($("vhead"), []); patch($("vpools"), []); $("pic").hidden = true;
    return;
  }
  chosen = one.name;
  patch($("vlist"), all.map((each) => listed(each, each.name === chosen)));
  const announced = one.announce ? (one.announce.announced ? `announced on ${one.announce.device}` : `not announced: ${one.announce.why ?? "not yet"}`) : "not announced by Holdfast";
  patch($("vhead"), [h("h3", {}, one.name), h("code", { class: "t2" }, one.vip), rate(one) ? h("span", { class: "t2" }, `${number(Math.round(rate(one)))} new flows/s`) : null, one.elsewhere ? null : h("span", { class: "t2" }, announced), seenOn(one),
    one.panic ? h("span", { class: "bad" }, "panic: all backends serve, healthy or not") : null, one.paused ? h("span", { class: "warn" }, one.paused.why ? `paused by ${one.paused.who}: “${one.paused.why}”` : `paused by ${one.paused.who}`) : null, one.programmed === false ? h("span", { class: "warn" }, "not programmed yet") : null,
    one.balancer && one.balancer.warm_up !== "over" ? h("span", { class: "warn" }, `warm-up: ${one.balancer.warm_up}; nothing is written before the backends are probed`) : null]);
  patch($("vpools"), pools(one));
  picture(one);
}

/* ---- the picture ---- */
const unpack = (text) => new Uint16Array(Uint8Array.from(atob(text), (one) => one.charCodeAt(0)).buffer);

function picture(one) {
  const found = digests(), counts = one.balancer?.buckets[one.name] ?? {}, key = JSON.stringify([one.name, counts]);
  $("pic").hidden = !Object.keys(counts).length;
  const apart = found.filter(([, digest]) => digest !== found[0][1]), shown = [...found.slice(0, 1), ...apart, ...found.slice(1).filter((each) => !apart.includes(each))].slice(0, 4);
  patch($("dig"), shown.map(([name, digest]) => h("li", {}, h("span", {}, name), h("code", { class: digest === found[0][1] ? "" : "bad" }, digest.slice(0, 6)))));
  const same = found.filter(([, digest]) => digest === found[0]?.[1]).length;
  patch($("agree"), [h("span", { class: same < found.length ? "bad" : "" }, same < found.length ? `Tables differ: ${same} of ${found.length} are equal` : `Tables equal on ${same} of ${many(found.length, "balancer")}`)]);
  if (!$("pic").hidden && wantedFor !== key) fetchTable(one.name, key);
}

async function fetchTable(name, key) {
  wantedFor = key;
  try {
    const answer = await fetch(`/api/v1/frontends/${encodeURIComponent(name)}/table`);
    if (!answer.ok) throw new Error(String(answer.status));
    const found = await answer.json();
    table = { ...found, now: unpack(found.table), base: unpack(found.base) };
    cursor = Math.min(cursor, table.size - 1);
    paint();
  } catch {
    wantedFor = "";
  }
}

function say() {
  if (!table?.size) return;
  const total = `${number(table.size)} buckets${table.size <= 65792 ? ", one pixel each" : ""}. `;
  if (mode === "moved") {
    let moved = 0;
    const gone = new Set();
    for (let at = 0; at < table.size; at++) if (table.now[at] !== table.base[at]) { moved++; gone.add(table.base[at]); }
    const names = [...gone].map((one) => table.members[one]?.backend || table.members[one]?.address).filter(Boolean).join(", ");
    return put("bk", moved ? `${number(moved)} buckets (${((moved / table.size) * 100).toFixed(1)} %) are with stand-ins for ${names}. No other flow moved.` : "No bucket is with a stand-in.");
  }
  const now = table.now[cursor], base = table.base[cursor], of = (one) => (one === NONE ? "nobody" : `${LETTERS[one % 26]} ${table.members[one]?.backend || table.members[one]?.address}`);
  put("bk", `${total}Bucket ${number(cursor)} → ${of(now)}${now !== base ? `, stand-in for ${of(base)}` : ""}.`);
}

export function paint() {
  if (!table?.size) return;
  const canvas = $("cv"), rows = Math.ceil(table.size / 256), palette = colours().map(rgb), faint = rgb(getComputedStyle(document.documentElement).getPropertyValue("--line").trim());
  if (canvas.height !== rows) canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(256, rows);
  const order = mode === "owner" ? Uint32Array.from(table.now.keys()).sort((a, b) => table.now[a] - table.now[b] || table.base[a] - table.base[b]) : null;
  for (let place = 0; place < table.size; place++) {
    const at = order ? order[place] : place, owner = table.now[at], plain = mode === "moved" && owner === table.base[at];
    const [red, green, blue] = plain || owner === NONE ? faint : palette[owner % 5];
    image.data.set([red, green, blue, 255], place * 4);
  }
  context.putImageData(image, 0, 0);
  canvas.setAttribute("aria-label", clean(`Bucket table of ${table.frontend}: ${table.members.map((one) => one.backend || one.address).join(", ")} share ${number(table.size)} buckets. Arrow keys move, the line below names the bucket.`));
  say();
}

export function setUpVips() {
  document.addEventListener("click", (event) => {
    const vip = event.target.closest("[data-v]"), order = event.target.closest("[data-m]");
    if (vip) { chosen = vip.dataset.v; wantedFor = ""; showVips(); }
    if (order) { mode = order.dataset.m; for (const one of document.querySelectorAll("[data-m]")) one.setAttribute("aria-pressed", String(one === order)); paint(); }
  });
  const canvas = $("cv"), move = (to) => { if (table?.size) { cursor = Math.max(0, Math.min(table.size - 1, to)); say(); } };
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 256, ArrowUp: -256 }[event.key];
    if (step) { event.preventDefault(); move(cursor + step); put("say", $("bk").textContent); }
  });
  canvas.addEventListener("pointermove", (event) => {
    if (mode !== "table") return;
    const place = canvas.getBoundingClientRect();
    move(Math.floor(((event.clientY - place.top) / place.height) * canvas.height) * 256 + Math.floor(((event.clientX - place.left) / place.width) * 256));
  });
}
