// The grid of hosts: built once for a set of names; an update changes the class of a cell. One delegated listener.

import { $, clean, command, h, lasting, many, number, patch, put } from "./dom.js";
import { foldedClass, unfold } from "./fold.js";
import { neighbours } from "./evidence.js";
import { rackOf, state } from "./state.js";

const CLASS = { h: "head", b: "behind", g: "held", f: "failing", p: "paused", s: "silent", d: "drained" };
const WORD = { h: "at head", b: "behind", g: "gate closed", f: "failing", p: "paused", s: "silent", d: "drained" };
const CHIPS = "hbgsfpd", URGENT = "sgfbpd";
const ROW = 20;
let cells = [], racks = [], selected = -1, filter = "", explained = null, asked = "", dimmed = false;

const isDrained = (name) => (state.fleet?.drains ?? []).some((one) => one.host === name);
const letterOf = (index) => state.hosts.states[index] ?? "h";
const reasonOf = (index) => state.hosts.reasons[state.hosts.names[index]] ?? {};

function label(index) {
  return `${state.hosts.names[index]}, ${WORD[letterOf(index)] ?? "not known"}${reasonOf(index).why ? `: ${reasonOf(index).why}` : ""}`;
}

function build() {
  const grid = $("grid"), { names } = state.hosts, rows = [];
  cells = new Array(names.length);
  racks = names.map(rackOf);
  grid.className = `racks ${names.length > 2000 ? "many" : names.length > 700 ? "mid" : ""}`;
  for (let at = 0; at < names.length; ) {
    const rack = racks[at];
    for (let first = true; at < names.length && racks[at] === rack; first = false) {
      const row = document.createElement("div");
      row.className = "rack";
      const title = document.createElement("span");
      title.textContent = first ? clean(rack).slice(-6) : "";
      title.title = clean(rack);
      row.append(title);
      for (let column = 0; column < ROW && at < names.length && racks[at] === rack; column++, at++) {
        const cell = document.createElement("i");
        cell.id = `h${at}`;
        cell.setAttribute("role", "option");
        cell.setAttribute("aria-label", clean(label(at)));
        cell.className = `h ${CLASS[letterOf(at)] ?? "unknown"}`;
        cells[at] = cell;
        row.append(cell);
      }
      rows.push(row);
    }
  }
  grid.replaceChildren(...rows);
  if (selected < 0 || selected >= names.length) selected = Math.max(0, worst());
  if (names.length) cells[selected].classList.add("sel");
}

// The first host of the most urgent state: the one to explain before anybody chooses.
function worst() {
  const found = [...URGENT].map((letter) => state.hosts.states.indexOf(letter)).find((index) => index >= 0);
  return found ?? 0;
}

function around() {
  const { names, complete } = state.hosts, counts = {};
  for (const letter of state.hosts.states) counts[letter] = (counts[letter] ?? 0) + 1;
  put("r-hosts", complete ? `${number(names.length)} in ${many(new Set(racks).size, "rack")}` : "reading the reports");
  const chips = [h("button", { class: "chip", "data-f": "", "aria-pressed": String(filter === "") }, "All ", h("b", {}, number(names.length)))];
  for (const letter of CHIPS)
    if (letter !== "f" || counts.f || filter === "f") chips.push(h("button", { class: `chip ${counts[letter] ? "" : "zero"}`, "data-f": letter, "aria-pressed": String(filter === letter) }, h("i", { class: `h key ${CLASS[letter]}`, "aria-hidden": "true" }),
      `${WORD[letter][0].toUpperCase()}${WORD[letter].slice(1)} `, h("b", {}, number(counts[letter] ?? 0))));
  $("chips").className = "chips";
  patch($("chips"), chips);
  showExceptions();
  dim();
}

export function showExceptions() {
  const { names, states, reasons } = state.hosts, found = new Map();
  for (let index = 0; index < names.length; index++) {
    const letter = states[index];
    if (letter === "h") continue;
    const { why = "", opens } = reasons[names[index]] ?? {}, key = `${letter}\n${racks[index]}\n${why}`, known = found.get(key);
    if (known) known.count += 1;
    else found.set(key, { letter, why, rack: racks[index], name: names[index], index, count: 1, opens });
  }
  const groups = [...found.values()];
  groups.sort((a, b) => URGENT.indexOf(a.letter) - URGENT.indexOf(b.letter));
  if (!groups.length) return patch($("exc"), [h("p", { class: "more" }, names.length ? `All ${number(names.length)} hosts are at head. Select one to explain it.` : "No host is known: the inventory is empty, or not synced yet.")]);
  const rows = groups.slice(0, 6).map((one) => h("tr", {}, h("td", { class: "nw" }, h("button", { "data-h": one.index }, one.count > 4 ? one.rack : one.name), one.count > 1 ? h("span", { class: "t2" }, ` ${many(one.count, "host")}`) : null),
    h("td", {}, h("span", { class: `st ${"sgf".includes(one.letter) ? "bad" : ""}` }, h("i", { class: `h key ${CLASS[one.letter]}`, "aria-hidden": "true" }), WORD[one.letter])),
    h("td", { class: "num" }, since(one.index)), h("td", { class: "c-why t2" }, one.why)));
  patch($("exc"), [h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "Not at head"), h("th", {}, "State"), h("th", { class: "num" }, "For"), h("th", { class: "c-why" }, "Why"))), h("tbody", {}, rows)),
    groups.length > 6 ? h("p", { class: "more" }, `${number(groups.length - 6)} more: filter by state`) : null]);
}

function since(index) {
  const moment = Date.parse(reasonOf(index).since ?? "");
  return Number.isNaN(moment) || !state.status ? "–" : lasting((Date.parse(state.status.at) - moment) / 1000);
}

function dim() {
  const wanted = $("hf").value.trim().toLowerCase(), { names } = state.hosts;
  const was = dimmed;
  dimmed = Boolean(filter || wanted);
  if (!dimmed && !was) return;
  cells.forEach((one, index) => {
    const fits = !dimmed || (!filter || letterOf(index) === filter) && (!wanted || names[index].toLowerCase().includes(wanted) || (reasonOf(index).why ?? "").toLowerCase().includes(wanted));
    one.classList.toggle("dim", !fits);
  });
}

export function onHosts(found) {
  const same = state.hosts && cells.length === found.names.length && found.names.every((name, index) => name === state.hosts.names[index]);
  const before = state.hosts?.states;
  state.hosts = found;
  if (!same) build();
  else for (let index = 0; index < cells.length; index++) if (before[index] !== found.states[index]) recolour(index);
  around();
  inspect();
}

export function onCells(changes) {
  if (!state.hosts) return;
  const letters = [...state.hosts.states];
  for (const [index, letter, reason] of changes) {
    letters[index] = letter;
    if (reason) state.hosts.reasons[state.hosts.names[index]] = reason;
    else delete state.hosts.reasons[state.hosts.names[index]];
  }
  state.hosts.states = letters.join("");
  for (const [index] of changes) recolour(index);
  around();
  if (changes.some(([index]) => index === selected)) inspect();
}

function recolour(index) {
  const one = cells[index], keep = [...one.classList].filter((name) => name === "sel" || name === "dim");
  one.className = ["h", CLASS[letterOf(index)] ?? "unknown", ...keep].join(" ");
  one.setAttribute("aria-label", clean(label(index)));
}

/* ---- one host ---- */
function rows(found) {
  const { fleet, agent } = found, report = fleet?.report, shown = [];
  if (fleet) shown.push(["Known", `${fleet.addresses.join(", ") || "no address"} · ${many(fleet.endpoints, "endpoint")}`]);
  if (fleet) shown.push(["Agent", `${fleet.alive ? "alive" : "silent"}${fleet.reported ? `, last report ${fleet.reported} by its own clock` : ", no report so far"}${report ? `; version ${report.version}` : ""}`]);
  if (report) shown.push(["Reported", Object.entries(report.counts ?? {}).map(([name, count]) => `${number(count)} ${name}`).join(" · ") + ` · ${number(report.pending_deletes ?? 0)} pending deletes`]);
  const rack = neighbours(found.name);
  if (rack) shown.push(["Network", rack]);
  const gates = report?.gates ?? [];
  shown.push(["Gates", gates.length ? gates.map((one) => h("div", {}, h("b", {}, one.gate), ` since ${one.since}: ${one.reason}${one.opens ? `. To release: ${one.opens}` : ""}`)) : report ? "None closed at its last report." : "Not known."]);
  const troubles = report?.troubles ?? [];
  if (troubles.length) shown.push(["Objects", troubles.slice(0, 4).map((one) => h("div", {}, `${one.state}: ${one.key}: ${one.reason}`))]);
  if (agent?.sources?.length && agent.self) shown.push(["Sources", agent.sources.map((one) => h("div", {}, `${one.name === "no-region" ? "the store" : one.name}: ${one.revision === null ? "not complete yet" : `complete at rev ${number(one.revision)}`}, ${many(one.objects, "object")}`))]);
  if (fleet?.unreadable?.length) shown.push(["Unreadable", fleet.unreadable.map((one) => h("div", {}, one))]);
  const changes = (found.decisions ?? []).slice(-3).reverse();
  if (changes.length) shown.push(["Changes", changes.map((one) => h("div", {}, `${one.time.slice(11, 19)} ${one.op} ${one.key}: ${one.sentence}`))]);
  return shown;
}

function inspect() {
  const name = state.hosts?.names[selected];
  if (name === undefined) return patch($("insp"), []);
  const letter = letterOf(selected), why = reasonOf(selected), bad = "sgf".includes(letter);
  const say = letter === "h" ? "This host has everything it should have, as of its last report." : letter === "s" ? "The agent of this host does not report. Routes to its endpoints stay on every other host; their status is unknown." : `This host is ${WORD[letter]}: ${why.why ?? ""}`;
  $("insp").className = foldedClass("insp", "host");
  const details = explained && explained.name === name ? rows(explained) : asked === name ? [["", "asking …"]] : [];
  patch($("insp"), [h("header", {}, h("h3", {}, name), h("span", { class: `st ${bad ? "bad" : "t2"}` }, h("i", { class: `h key ${CLASS[letter]}`, "aria-hidden": "true" }), WORD[letter], why.since ? ` ${since(selected)}` : ""), unfold("host", "Details")),
    h("p", { class: "say" }, say), h("dl", { class: "kv" }, details.map(([key, value]) => [h("dt", {}, key), h("dd", {}, value)])),
    h("div", { class: "cmds" }, command("Look", `holdfast explain host ${name}`), why.opens?.startsWith("holdfast ") ? command("Release", why.opens) : null, letter === "s" ? command("On host", "systemctl status holdfast-agent") : command("History", `holdfast history host ${name}`),
      state.admin ? h("div", { class: "act" }, h("button", { class: "btn go", "data-run": `holdfast ${letter === "p" ? "resume" : "pause"} host ${name}` }, letter === "p" ? "Resume …" : "Pause …"),
        h("button", { class: "btn go", "data-run": `holdfast ${isDrained(name) ? "undrain" : "drain"} host ${name}` }, isDrained(name) ? "Undrain …" : "Drain …")) : null)]);
  if (asked !== name) ask(name);
}

async function ask(name) {
  asked = name;
  try {
    const answer = await fetch(`/api/v1/explain/host/${encodeURIComponent(name)}`);
    const found = await answer.json();
    if (asked === name) explained = answer.ok ? found : { name, decisions: [], fleet: null, agent: null };
  } catch {
    return; // the header says that the page is cut off
  }
  if (asked === name) inspect();
}

export function pick(index) {
  if (!cells[index]) return;
  cells[selected]?.classList.remove("sel");
  selected = index;
  asked = "";
  cells[index].classList.add("sel");
  $("grid").setAttribute("aria-activedescendant", `h${index}`);
  inspect();
}

export function refreshHost() {
  if (state.hosts) asked = "";
  showHost();
}

export function showHost() {
  if (state.hosts) inspect();
}

/* ---- pointer and keys ---- */
function tip(element, index) {
  const box = $("tip"), place = element.getBoundingClientRect();
  patch(box, [h("b", {}, state.hosts.names[index]), ` ${WORD[letterOf(index)] ?? ""}`, reasonOf(index).why ? [h("br"), reasonOf(index).why] : null]);
  box.style.left = `${Math.min(innerWidth - box.offsetWidth - 8, Math.max(8, place.left - 8))}px`;
  box.style.top = `${place.top > 70 + box.offsetHeight ? place.top - box.offsetHeight - 8 : place.bottom + 8}px`;
  box.classList.add("on");
}
const untip = () => $("tip").classList.remove("on");
const indexOf = (target) => (/^h\d+$/.test(target.id) ? Number(target.id.slice(1)) : -1);

export function setUpHosts() {
  const grid = $("grid");
  grid.addEventListener("pointerover", (event) => (indexOf(event.target) >= 0 ? tip(event.target, indexOf(event.target)) : untip()));
  grid.addEventListener("pointerleave", untip);
  grid.addEventListener("blur", untip);
  grid.addEventListener("click", (event) => indexOf(event.target) >= 0 && pick(indexOf(event.target)));
  grid.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: ROW, ArrowUp: -ROW, Home: -1e9, End: 1e9 }[event.key];
    if (step && cells.length) {
      event.preventDefault();
      pick(Math.max(0, Math.min(cells.length - 1, selected + step)));
      cells[selected].scrollIntoView({ block: "nearest" });
      tip(cells[selected], selected);
    } else if (event.key === "Enter") $("insp").querySelector("button")?.focus();
  });
  $("hf").addEventListener("input", () => state.hosts && dim());
  document.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-f]"), row = event.target.closest("[data-h]");
    if (chip && state.hosts) { filter = chip.dataset.f; around(); }
    if (row) pick(Number(row.dataset.h));
  });
}
