// Signing in, and what an admin may do from the page: it is shown what a gate holds before anything is released.

import { $, h, many, patch, put } from "./dom.js";
import { showIntents } from "./records.js";
import { showProblems } from "./overview.js";
import { state } from "./state.js";

const JSON_TYPE = { "Content-Type": "application/json" }, PROOF = "holdfast-proof";
// The browser sends the cookie to every port of this host, but what is kept here goes to no other origin.
let proof = "";
try { proof = sessionStorage.getItem(PROOF) ?? ""; } catch { /* a private window keeps none */ }

function keep(given) {
  proof = given;
  try { sessionStorage.setItem(PROOF, proof); } catch { /* a private window keeps none */ }
}

async function call(method, path, body, headers = {}) {
  const sent = { ...(body ? JSON_TYPE : {}), ...(method === "GET" ? {} : { "Holdfast-Session": proof }), ...headers };
  const answer = await fetch(`/api/v1/${path}`, { method, headers: sent, body: body ? JSON.stringify(body) : undefined });
  const found = answer.status === 204 ? {} : await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(found.detail ?? `the API answers ${answer.status}`), { status: answer.status });
  return { found, tag: answer.headers.get("ETag") };
}

function show() {
  const known = state.admin ?? state.reader, button = h("button", { "data-sign": "in" }, "sign in");
  patch($("who"), known
    ? [`signed in as ${known}${state.admin ? "" : ", who may only read"} `, h("button", { "data-sign": "out" }, "Sign out")]
    : state.locked ? ["this page shows nothing without a token: ", button] : ["read only: ", button, " with an admin token to pause, drain, resume or release a gate here"]);
  if (state.status) showProblems();
  showIntents();
}

function dialog(title, parts, act, doIt) {
  const box = h("dialog", { "aria-label": title }, h("h2", {}, title), parts, h("p", { class: "said", role: "status" }), h("div", { class: "row" }, h("button", { class: "btn go", "data-do": "" }, act), h("button", { class: "btn", "data-close": "" }, "Close")));
  const said = box.querySelector(".said"), run = box.querySelector("[data-do]");
  const go = async () => {
    run.disabled = true;
    try { patch(said, [await doIt(box)]); } catch (error) { patch(said, [h("span", { class: "bad" }, error.message)]); run.disabled = false; }
  };
  run.addEventListener("click", go);
  box.addEventListener("keydown", (event) => event.key === "Enter" && event.target.tagName === "INPUT" && go());
  box.querySelector("[data-close]").addEventListener("click", () => box.close());
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

const field = (label, name, type = "text") => h("label", {}, label, h("input", { type, name, autocomplete: "off", required: true }));
const value = (box, name) => box.querySelector(`[name=${name}]`).value.trim();

function take(found) {
  state.admin = found?.role === "admin" ? found.name : null;
  state.reader = found?.role === "read" ? found.name : null;
}

function signIn(signedIn) {
  dialog("Sign in", [h("p", { class: "t2" }, "Create one with: holdfast token create NAME --role admin, or --role read"), field("Token", "token", "password")], "Sign in", async (box) => {
    const { found } = await call("POST", "session", { token: value(box, "token") });
    keep(found.proof);
    take(found);
    box.close();
    show();
    signedIn();
    return "";
  });
}

async function signOut() {
  await call("DELETE", "session").catch(() => null);
  keep("");
  if (state.locked) return location.reload();
  take(null);
  show();
}

async function release(gate) {
  const { found, tag } = await call("GET", `plan?gate=${encodeURIComponent(gate)}`);
  const lines = found.objects.slice(0, 100).map((one) => `${one.op} ${one.key}`).join("\n");
  const shown = h("pre", {});
  shown.append(...lines.split("\n").map((one) => h("div", {}, one)));
  dialog(`Release ${gate} once`, [h("p", { class: "t2" }, `It holds ${many(found.total, "change")}. Exactly these are released.`), shown, field("Reason, recorded with your name", "reason")], `Release ${many(found.total, "change")}`,
    async (box) => (await call("POST", "gates/allow", { gate, reason: value(box, "reason") }, { "If-Match": tag })).found.answer);
}

function pause(action, kind, name) {
  const what = `${action[0].toUpperCase()}${action.slice(1)} ${kind}${name ? ` ${name}` : ""}`;
  const begins = action === "pause" || action === "drain";
  const parts = begins ? [field("Reason, recorded with your name", "reason"), field("For how long, such as 30m", "lasting")] : [];
  dialog(what, parts, what, async (box) => {
    const more = begins ? { reason: value(box, "reason"), lasting: value(box, "lasting") } : {};
    return (await call("POST", "intents", { action, kind, name, ...more })).found.answer;
  });
}

export async function setUpSession(signedIn) {
  document.addEventListener("click", (event) => {
    const sign = event.target.closest("[data-sign]"), run = event.target.closest("[data-run]");
    if (sign) sign.dataset.sign === "in" ? signIn(signedIn) : signOut();
    if (!run) return;
    const [, verb, ...words] = run.dataset.run.split(" ");
    if (verb === "gate") release(words[1]).catch((error) => put("say", error.message));
    else pause(verb, words[0], words[1] ?? "");
  });
  const known = await call("GET", "session").catch((error) => { state.locked = error.status === 401; });
  take(proof ? known?.found : null);
  show();
}
