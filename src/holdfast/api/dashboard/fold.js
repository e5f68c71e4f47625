// On phones followers and the details of a host are folded until somebody unfolds them; elsewhere the button is not shown.

import { h } from "./dom.js";

const unfolded = new Set();

export const foldedClass = (classes, name) => (unfolded.has(name) ? classes : `${classes} folded`);
export const unfold = (name, what) =>
  h("button", { class: "unfold", "data-unfold": name, "aria-expanded": String(unfolded.has(name)), "aria-label": `${what} of ${name}` }, unfolded.has(name) ? "Less" : what);

export function setUpFolds(show) {
  document.addEventListener("click", (event) => {
    const name = event.target.closest("[data-unfold]")?.dataset.unfold;
    if (name === undefined) return;
    if (!unfolded.delete(name)) unfolded.add(name);
    show();
  });
}
