// The pods of a job: where they run, how their containers are, and how earlier runs have ended.
import { html } from "../dom.js";
import { Age, Table } from "../widgets.js";

/** `hrefOfLog(pod)` is the address of a pod's log. */
export function PodsTable({ pods, hrefOfLog }) {
  return html`<${Table}
    name="Pods"
    columns=${["Pod", "Phase", "Containers", "Restarts", "Node", "Age"]}
    keys=${pods.map((pod) => pod.uid)}
    rows=${pods.map((pod) => [
      html`<a href=${hrefOfLog(pod)}>${pod.name}</a><span class="second">${place(pod)}</span>`,
      html`<${PodPhase} pod=${pod} />`,
      html`<${Containers} pod=${pod} />`,
      pod.restarts || "",
      pod.node,
      html`<${Age} since=${pod.created} />`,
    ])}
    empty="There are no pods."
  />`;
}

function place(pod) {
  return `${pod.step} ${pod.job ? `job ${pod.job} ` : ""}index ${pod.index}${pod.attempt ? `, after restart ${pod.attempt}` : ""}`;
}

function PodPhase({ pod }) {
  const state = pod.gone ? "gone" : pod.deleting ? "terminating" : "";
  return html`<span class=${`pod-phase pod-${pod.phase.toLowerCase()}`}>${pod.phase}</span>${state ? html` <b>${state}</b>` : ""}
    ${pod.detail ? html`<span class="wrapped">${pod.detail}</span>` : ""}`;
}

function Containers({ pod }) {
  return html`<ul class="plain">
    ${pod.containers.map(
      (container) =>
        html`<li key=${container.name}>
          <b>${container.name}</b>${container.init ? html`<span class="muted"> (init)</span>` : ""}: ${container.detail}
          ${container.restarts ? ` after ${container.restarts} ${container.restarts === 1 ? "restart" : "restarts"}` : ""}
          <${EarlierRuns} runs=${container.runs.filter((run) => run.code)} />
        </li>`,
    )}
  </ul>`;
}

function EarlierRuns({ runs }) {
  if (!runs.length) return null;
  return html`<ul class="plain">
    ${runs.map(
      (run) =>
        html`<li key=${run.ended} class="warning">
          exit code ${run.code}${run.reason && run.reason !== "Error" ? ` (${run.reason})` : ""} after <${Age} since=${run.started} until=${run.ended} />
          ${run.message ? html`<span class="wrapped">${run.message}</span>` : ""}
        </li>`,
    )}
  </ul>`;
}
