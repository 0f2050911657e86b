// Whether somebody can see this page. A browser opens six connections to a server at most, for all tabs together and for pages that it
// keeps to go back to: a page that nobody sees must not hold one for a stream.
const HIDDEN_MS = 20000;
const listeners = new Set();
let seen = true;
let timer;

addEventListener("pagehide", () => change(false));
addEventListener("pageshow", look);
document.addEventListener("visibilitychange", look);
look();

/** @returns {boolean} false for a page that was left, or is in the background for a while. */
export function isSeen() {
  return seen;
}

/** Calls `listener(seen)` when that changes. @returns {() => void} what stops it. */
export function onSeenChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Waits until the page is seen, or `signal` is aborted. */
export function untilSeen(signal) {
  return new Promise((resolve) => {
    if (seen || signal.aborted) return resolve();
    const finish = () => {
      stop();
      signal.removeEventListener("abort", finish);
      resolve();
    };
    const stop = onSeenChange((now) => now && finish());
    return signal.addEventListener("abort", finish);
  });
}

function look() {
  clearTimeout(timer);
  if (document.hidden) timer = setTimeout(() => change(false), HIDDEN_MS);
  else change(true);
}

function change(now) {
  if (seen === now) return;
  seen = now;
  for (const listener of listeners) listener(now);
}
