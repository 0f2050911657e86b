// The session of this browser: a token that is kept in the tab, and handed to new tabs of the same page, never stored on disk by the
// page and never part of an address. It goes to a server, and stays where a reload finds it, only while that server proves that it has
// the session. A one-time code comes in the fragment, and leaves it at once.
import { hasSession } from "./server_proof.js";

const KEY = "trainwright.session";
const HANDOVER_MS = 300;
const PROOF_MS = 1000;
let token = sessionStorage.getItem(KEY) || "";
let port = "";
let provenUntil = 0;
let asking = null;
const tabs = "BroadcastChannel" in window ? new BroadcastChannel("trainwright-session") : null;
const endings = new Set();

if (tabs) {
  tabs.onmessage = ({ data }) => {
    if (data === "who-has-one" && token) provenToken().then((proven) => proven && tabs.postMessage({ token: proven }), doubtServer);
    if (data === "ended" && token) forget();
  };
}

// A browser may discard a tab that nobody sees, and load it again from whatever listens on the port by then. On the way out of a page
// that is seen, which ends its streams too, `pagehide` comes first: a reload of it finds the session.
let isLeaving = false;
addEventListener("pagehide", () => {
  isLeaving = true;
});
addEventListener("pageshow", () => {
  isLeaving = false;
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden && !isLeaving) doubtServer();
  else if (token && !document.hidden) provenToken().catch(() => {});
});

/** @returns {string} the token for requests, empty without a session. */
export function sessionToken() {
  return token;
}

/** Sets the port that proofs of the server are bound to, empty for none. */
export function bindServer(value) {
  port = value;
}

/** @returns {Promise<string>} the token for a request, empty without a session. @throws {Error} if the server gives no proof now */
export async function provenToken() {
  if (token && Date.now() >= provenUntil) {
    asking ??= askServer().finally(() => {
      asking = null;
    });
    await asking;
  }
  if (token && navigator.serviceWorker?.controller) {
    await removeWorkers();
    forget();
  }
  return token;
}

/** Removes service workers: this page has none, and one of another program that had the port would read all requests. */
async function removeWorkers() {
  const found = await navigator.serviceWorker.getRegistrations();
  await Promise.all(found.map((each) => each.unregister()));
}

/** Asks for a new proof before the token is used again: a connection was lost. */
export function doubtServer() {
  provenUntil = 0;
  if (!isLeaving) sessionStorage.removeItem(KEY);
}

async function askServer() {
  const asked = token;
  const began = Date.now();
  const late = setTimeout(doubtServer, PROOF_MS);
  try {
    const known = await hasSession(asked, port);
    if (token !== asked) return;
    if (!known) forget();
    else {
      provenUntil = began + PROOF_MS; // a slow answer may say how it was long ago
      if (!document.hidden) sessionStorage.setItem(KEY, token);
    }
  } catch (error) {
    doubtServer();
    throw error;
  } finally {
    clearTimeout(late);
  }
}

/** Calls `listener` when the session ends. @returns {() => void} what stops it. */
export function onSessionEnd(listener) {
  endings.add(listener);
  return () => endings.delete(listener);
}

/** Keeps the token of a new session. */
export function keepSession(value) {
  token = value;
  provenUntil = 0;
  sessionStorage.setItem(KEY, value);
}

/** Forgets the session, in this tab. */
export function forget() {
  token = "";
  sessionStorage.removeItem(KEY);
  for (const listener of endings) listener();
}

/** Forgets the session, in all tabs. */
export function forgetEverywhere() {
  tabs?.postMessage("ended");
  forget();
}

/** Takes the one-time code out of the address. @returns {string} the code, empty if there is none. */
export function takeCode() {
  const found = /^#code=([A-Za-z0-9_-]+)$/.exec(location.hash);
  if (!found) return "";
  history.replaceState(null, "", location.pathname + location.search);
  dispatchEvent(new HashChangeEvent("hashchange"));
  return found[1];
}

/** Asks other tabs of the page for their session. @returns {Promise<boolean>} whether there is one now. */
export function askOtherTabs() {
  if (token || !tabs) return Promise.resolve(Boolean(token));
  return new Promise((resolve) => {
    const answered = ({ data }) => {
      if (!data?.token) return;
      finish();
      keepSession(data.token);
      resolve(true);
    };
    const finish = () => {
      clearTimeout(timer);
      tabs.removeEventListener("message", answered);
    };
    const timer = setTimeout(() => {
      finish();
      resolve(false);
    }, HANDOVER_MS);
    tabs.addEventListener("message", answered);
    tabs.postMessage("who-has-one");
  });
}
