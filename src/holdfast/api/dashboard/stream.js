// The event stream: follows it, notices when it is cut, and comes back with the id of the last message.

import { state } from "./state.js";

const SILENCE_MS = 5_000;
const FIRST_MS = 1_000;
const LONGEST_MS = 30_000;
const EVENTS = ["status", "fleet", "frontends", "hosts", "cells", "history", "decisions", "trouble", "tick"];
let source = null, wait = FIRST_MS, retryAt = 0, silence = 0;

export const retryIn = () => Math.max(0, Math.ceil((retryAt - performance.now()) / 1000));

export function follow(onMessage, onChange) {
  const heard = () => {
    state.heardAt = performance.now();
    clearTimeout(silence);
    silence = setTimeout(lost, SILENCE_MS);
    if (state.live) return;
    state.live = true;
    wait = FIRST_MS;
    onChange();
  };
  const lost = () => {
    source?.close();
    source = null;
    clearTimeout(silence);
    if (state.live) state.lostAt = Date.now();
    const was = state.live;
    state.live = false;
    retryAt = performance.now() + wait;
    setTimeout(() => source ?? open(), wait);
    wait = Math.min(LONGEST_MS, wait * 2);
    if (was) onChange();
  };
  const open = () => {
    source?.close();
    source = new EventSource(`/api/v1/stream${state.lastId ? `?after=${encodeURIComponent(state.lastId)}` : ""}`);
    source.onerror = lost;
    for (const name of EVENTS)
      source.addEventListener(name, (event) => {
        if (event.lastEventId) state.lastId = event.lastEventId;
        if (name !== "tick") onMessage(name, JSON.parse(event.data));
        heard();
      });
    clearTimeout(silence);
    silence = setTimeout(lost, SILENCE_MS);
  };
  open();
  return { retry: () => { wait = FIRST_MS; open(); } };
}
