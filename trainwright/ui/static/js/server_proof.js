// Proof that a server has a session, before it is sent there: while this page's server is down, any program may listen on its port.
// A proof is bound to the port of this page, so that one that another server gave cannot be passed on.

const ANSWER_MS = 10000;

/**
 * Asks for a proof. `port` is empty where the server does not know its address, behind an ingress. Without TLS on another machine's
 * address, browsers compute no digests: there, whoever reads along has the session anyway.
 * @returns {Promise<boolean>} whether the server has the session of the token. @throws {Error} if it does not answer, or cannot now
 */
export async function hasSession(token, port) {
  if (!crypto.subtle) return true;
  const digest = await sha256(token);
  const challenge = hex(crypto.getRandomValues(new Uint8Array(32)));
  const response = await fetch("api/proof", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ session: await sha256(digest), challenge }),
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
    signal: AbortSignal.timeout(ANSWER_MS),
  });
  if (response.status >= 500) throw new Error(`the server answers ${response.status}`);
  if (!response.ok) return false;
  const { proof } = await response.json();
  const key = await crypto.subtle.importKey("raw", bytes(digest), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return proof === hex(await crypto.subtle.sign("HMAC", key, bytes(`${challenge}\n${port}`)));
}

async function sha256(text) {
  return hex(await crypto.subtle.digest("SHA-256", bytes(text)));
}

function bytes(text) {
  return new TextEncoder().encode(text);
}

function hex(buffer) {
  return Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
