// Requests to the server of this page. Paths are below `api/`; the token of the session goes in a header, so no address has it.
import { doubtServer, forget, provenToken, sessionToken } from "./session.js";
import { isSeen, onSeenChange, untilSeen } from "./visibility.js";

const RETRY_MS = [500, 1000, 2000, 5000, 10000];
const SILENCE_MS = 40000;
const WITHOUT_SESSION = ["GET config", "POST session"];

/** An answer that is an error: `reason` is a short name, `message` a sentence for people. */
export class ApiProblem extends Error {
  constructor(code, reason, message) {
    super(message);
    this.code = code;
    this.reason = reason;
  }
}

/** @returns {Promise<any>} the JSON that a GET answers. @throws {ApiProblem} */
export function getJson(requestPath, { signal } = {}) {
  return request("GET", requestPath, undefined, signal);
}

/** @returns {Promise<any>} the JSON that a POST answers. @throws {ApiProblem} */
export function postJson(requestPath, body, { signal } = {}) {
  return request("POST", requestPath, body, signal);
}

/** Ends the session on the server. */
export function endSession() {
  return request("DELETE", "session");
}

/** @returns {Promise<Blob>} the content of a file. @throws {ApiProblem} */
export async function getBlob(requestPath, { signal } = {}) {
  return (await respond("GET", requestPath, undefined, signal)).blob();
}

/** Saves a blob as a file of the reader. */
export function saveBlob(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/** @returns {string} a query with the values that are not empty, beginning with `?`. */
export function query(values) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/** @returns {string} the parts of a path, each escaped, with slashes between them. */
export function path(...parts) {
  return parts.map((part) => encodeURIComponent(part)).join("/");
}

/**
 * Reads a stream of JSON lines, and opens it again when it ends, until `signal` aborts it. It is closed while nobody sees the page.
 * `streamPath` is a path, or returns that of the next connection. `onState` is called with `{live: true}` when it is open, and with
 * `{live: false, problem}` when it is not.
 */
export async function openStream(streamPath, onMessage, { signal, onState = () => {} }) {
  let failures = 0;
  while (!signal.aborted) {
    await untilSeen(signal);
    const attempt = new AbortController();
    const abort = () => attempt.abort();
    const unfollow = onSeenChange(abort);
    signal.addEventListener("abort", abort);
    try {
      if (signal.aborted) return;
      const response = await respond("GET", typeof streamPath === "string" ? streamPath : streamPath(), undefined, attempt.signal);
      onState({ live: true, problem: null });
      await readLines(response.body.getReader(), attempt.signal, (message) => {
        failures = 0;
        if (message.type !== "beat") onMessage(message);
      });
      doubtServer();
    } catch (error) {
      if (signal.aborted) return;
      if (!attempt.signal.aborted) doubtServer();
      onState({ live: false, problem: attempt.signal.aborted ? null : error });
      if (!attempt.signal.aborted && error instanceof ApiProblem && [400, 401, 403, 404].includes(error.code)) return;
    } finally {
      unfollow();
      signal.removeEventListener("abort", abort);
    }
    if (isSeen() && !attempt.signal.aborted) await untilRetry(failures++, signal);
  }
}

/** Calls `load(signal)` until the server and its cluster answer, and returns its result. `onProblem` gets each error before that. */
export async function untilAnswered(load, signal, onProblem = () => {}) {
  for (let failures = 0; ; failures++) {
    try {
      return await load(signal);
    } catch (problem) {
      if (signal.aborted || !isUnavailable(problem)) throw problem;
      onProblem(problem);
    }
    await untilRetry(failures, signal);
  }
}

function isUnavailable(problem) {
  return problem instanceof ApiProblem && [0, 503, 504].includes(problem.code);
}

/** Waits before a request is sent again, the longer the more often it has failed, and until somebody sees the page. */
async function untilRetry(failures, signal) {
  await pause(RETRY_MS[Math.min(failures, RETRY_MS.length - 1)], signal);
  await untilSeen(signal);
}

async function readLines(reader, signal, onMessage) {
  const decoder = new TextDecoder();
  let rest = "";
  while (!signal.aborted) {
    const { done, value } = await withDeadline(reader);
    if (done) return;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) onMessage(JSON.parse(line));
  }
}

/** Reads the next piece; a stream that does not even beat is lost. */
async function withDeadline(reader) {
  let timer;
  const silence = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new ApiProblem(0, "Silent", "the server does not answer")), SILENCE_MS);
  });
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (error) {
    reader.cancel().catch(() => {});
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

async function request(method, requestPath, body, signal) {
  return (await respond(method, requestPath, body, signal)).json();
}

async function respond(method, requestPath, body, signal) {
  const headers = {};
  const options = { method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error" };
  const inSession = sessionToken() && !WITHOUT_SESSION.includes(`${method} ${requestPath}`);
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    const token = inSession && (await provenToken());
    if (inSession && !token) throw new ApiProblem(401, "Unauthorized", "the session has ended");
    if (token) headers.Authorization = `Bearer ${token}`;
    response = await fetch(`api/${requestPath}`, options);
  } catch (error) {
    if (signal?.aborted || error instanceof ApiProblem) throw error;
    doubtServer();
    throw new ApiProblem(0, "Unreachable", "the server of this page does not answer");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401 && inSession) forget();
  throw new ApiProblem(response.status, problem.reason || "Error", problem.message || response.statusText);
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
