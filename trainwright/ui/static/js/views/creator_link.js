// Who made a job: a link to its DAG run or pipeline run where the address of the orchestrator is known.
import { html } from "../dom.js";
import { OutLink } from "../widgets.js";

const KINDS = { airflow: "Airflow", kfp: "KFP", trainwright: "trainwright" };
const SETTINGS = "trainwright.orchestrators";

let ofServer = {};

/** Takes the addresses that the server of the page was started with. */
export function setServerOrchestrators(addresses) {
  ofServer = addresses || {};
}

/** @returns {{airflow: string, kfp: string}} the addresses that this browser's user has given, else those of the server. */
export function orchestrators() {
  let own = {};
  try {
    own = JSON.parse(localStorage.getItem(SETTINGS) || "{}");
  } catch {
    localStorage.removeItem(SETTINGS);
  }
  return { airflow: own.airflow || ofServer.airflow || "", kfp: own.kfp || ofServer.kfp || "" };
}

/** Remembers the addresses of the orchestrators in this browser. */
export function keepOrchestrators(addresses) {
  localStorage.setItem(SETTINGS, JSON.stringify(addresses));
}

/** `creator` is that of a row. */
export function CreatorLink({ creator }) {
  const kind = KINDS[creator.kind] || "";
  const text = [creator.name, creator.run].filter(Boolean).join(" / ");
  const base = (orchestrators()[creator.kind] || "").replace(/\/+$/, "");
  return html`<span class="creator" title=${[kind, text, creator.task].filter(Boolean).join(" · ")}>
    ${base && creator.path ? html`<${OutLink} href=${base + creator.path}>${creator.name || kind}<//>` : html`<span>${creator.name}</span>`}
    <span class="second">${[kind === creator.name ? "" : kind, creator.run].filter(Boolean).join(" ")}</span>
  </span>`;
}
