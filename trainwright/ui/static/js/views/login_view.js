// Before there is a session: the code of a one-time link is exchanged for one, or a token of the cluster is asked for.
import { getJson, postJson } from "../api.js";
import { html, useState } from "../dom.js";
import { keepSession } from "../session.js";
import { Button, Notice, Problem } from "../widgets.js";

/** Begins a session with a code. @throws {ApiProblem} */
export async function openWithCode(code) {
  const { session } = await postJson("session", { code });
  keepSession(session);
}

/** @returns {Promise<{login: "link" | "token", version: string}>} how users begin a session. */
export function loginConfig() {
  return getJson("config");
}

/** What users without a session see. `onOpen` is called when there is one. */
export function LoginView({ login, problem, onOpen }) {
  if (login === "token") return html`<${TokenForm} onOpen=${onOpen} />`;
  return html`<main class="login" id="main">
    <h1>Trainwright</h1>
    <${Problem} problem=${problem} />
    <${Notice}>This page is opened by a link that works once. Run <code>trainwright ui</code> for a new one.<//>
  </main>`;
}

function TokenForm({ onOpen }) {
  const [token, setToken] = useState("");
  const [state, setState] = useState({ busy: false, problem: null });
  const open = async (event) => {
    event.preventDefault();
    setState({ busy: true, problem: null });
    try {
      const { session } = await postJson("session", { token: token.trim() });
      setToken("");
      keepSession(session);
      onOpen();
    } catch (problem) {
      setState({ busy: false, problem });
    }
  };
  return html`<main class="login" id="main">
    <h1>Trainwright</h1>
    <form onSubmit=${open}>
      <label class="field"
        >Token of the cluster
        <input
          type="password"
          name="token"
          autocomplete="off"
          required
          value=${token}
          onInput=${(event) => setToken(event.target.value)}
          aria-describedby="token-help"
        />
      </label>
      <p id="token-help" class="muted">
        You have the rights of this token. It stays in the memory of this page's server until you log out. A service account's is printed by
        ${" "}<code>kubectl create token NAME</code>.
      </p>
      <${Problem} problem=${state.problem} />
      <${Button} kind="primary" type="submit" why=${state.busy ? "logging in" : token ? "" : "no token"} onClick=${open}>Log in<//>
    </form>
  </main>`;
}
