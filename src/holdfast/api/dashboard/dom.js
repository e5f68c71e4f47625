// Builds and patches the page. Every text passes `clean` and goes into a text node: nothing is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export const $ = (id) => document.getElementById(id);
export const clean = (text) =>
  String(text).replace(HIDDEN, (one) => {
    const code = one.charCodeAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });

function add(element, children) {
  for (const child of children.flat(9)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(clean(child)));
  }
  return element;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") for (const [one, given] of Object.entries(value)) element.style.setProperty(one, given);
    else element.setAttribute(name, value === true ? "" : clean(value));
  }
  return element;
}

export const h = (tag, attributes = {}, ...children) => add(set(document.createElement(tag), attributes), children);
export const s = (tag, attributes = {}, ...children) => add(set(document.createElementNS(SVG, tag), attributes), children);
export const icon = (name) => s("svg", { class: "i", "aria-hidden": "true" }, s("use", { href: `#i-${name}` }));

function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.dataset.key !== fresh.dataset.key) return old.replaceWith(fresh);
  for (const { name } of [...old.attributes])
    if (name !== "style" && !(name === "open" && old.nodeName === "DETAILS") && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes)
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  patch(old, [...fresh.childNodes]);
}

// Makes the children of an element look like `fresh`, in place: focus, selection and scroll positions stay.
export function patch(element, fresh) {
  const nodes = add(document.createDocumentFragment(), [fresh].flat(9)).childNodes;
  const wanted = [...nodes];
  const present = [...element.childNodes];
  wanted.forEach((one, index) => (index < present.length ? morph(present[index], one) : element.append(one)));
  present.slice(wanted.length).forEach((one) => one.remove());
}

export function put(id, text) {
  const element = $(id);
  const shown = clean(text);
  if (element.textContent !== shown) element.textContent = shown;
}

export const number = (value) => Number(value).toLocaleString("en-US");
export const many = (count, one, more = `${one}s`) => `${number(count)} ${count === 1 ? one : more}`;
export function lasting(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}
export const about = (seconds) => (seconds < 60 || seconds >= 3600 ? lasting(seconds) : `${Math.floor(seconds / 60)} min`);
export const short = (seconds) => (seconds === null || seconds === undefined ? "–" : seconds < 10 ? `${seconds.toFixed(1)} s` : lasting(seconds));
// Two units without spaces, for where a sentence has no room.
export const tight = (seconds) => (seconds < 60 ? short(seconds) : lasting(seconds).replace(/ (min|[dhs])/g, (_, unit) => unit[0]).replaceAll(" ", ""));
export const clock = (moment) => `${new Date(moment).toISOString().slice(11, 19)}Z`;
export const day = (moment) => `${new Date(moment).toISOString().slice(5, 19).replace("T", " ")}Z`;

// A command to copy, exactly as it is shown.
export function command(label, text) {
  const pieces = clean(text).split(/(--[\w-]+|…|WHY|"…")/).map((one, index) => {
    if (index % 2 === 0) return one;
    return h("span", { class: one.startsWith("--") ? "nw" : "ph" }, one);
  });
  const copy = h("button", { class: "copy", "data-copy": clean(text), "aria-label": `Copy: ${text}` }, icon("copy"), h("span", {}, "Copy"));
  return h("div", { class: "cmd" }, h("span", { class: "lab" }, label), h("code", {}, pieces), copy);
}
