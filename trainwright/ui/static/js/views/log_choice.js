// Which log is shown: the pod by its rank, the container, and the run of a container that has restarted.
import { html } from "../dom.js";

/** @returns {{entry, run}|null} the container and run that the address names, else the training's first rank. */
export function chosenLog(containers, values) {
  const [pod, container, run] = ["pod", "container", "run"].map((name) => values.get(name));
  const ofPod = containers.filter((entry) => entry.pod === pod);
  const candidates = ofPod.length ? ofPod : containers;
  const isDefault = (each) => each.main && (ofPod.length || isOfTraining(each));
  const entry = candidates.find((each) => each.container === container) || candidates.find(isDefault) || candidates[0];
  if (!entry) return null;
  const runs = runsOf(entry);
  return { entry, run: runs.includes(Number(run)) && run !== null ? Number(run) : runs[0] };
}

/** The runs whose logs a node keeps, the current one first. */
export function runsOf(entry) {
  return entry.restarts ? [entry.restarts, entry.restarts - 1] : [0];
}

/** `onChoose` gets the values of the address to change. */
export function LogChoice({ containers, chosen, onChoose }) {
  if (!chosen) return null;
  const { entry, run } = chosen;
  const pods = containers.filter((each, number) => containers.findIndex((other) => other.uid === each.uid) === number);
  const ofPod = containers.filter((each) => each.uid === entry.uid);
  const choose = (values) => onChoose({ pod: entry.pod, container: entry.container, run: "", ...values });
  return html`<div class="filters">
    <label class="field grow">
      Rank
      <select value=${entry.pod} onChange=${(event) => choose({ pod: event.target.value, container: "" })}>
        ${pods.map((each) => html`<option key=${each.uid} value=${each.pod}>${podText(each)}</option>`)}
      </select>
    </label>
    <label class="field">
      Container
      <select value=${entry.container} onChange=${(event) => choose({ container: event.target.value })}>
        ${ofPod.map((each) => html`<option key=${each.container} value=${each.container}>${containerText(each)}</option>`)}
      </select>
    </label>
    <label class="field">
      Run
      <select value=${String(run)} onChange=${(event) => choose({ run: event.target.value })}>
        ${runsOf(entry).map((number) => html`<option key=${number} value=${String(number)}>${runText(entry, number)}</option>`)}
      </select>
    </label>
  </div>`;
}

function isOfTraining(entry) {
  return entry.step === "node" || entry.step === "launcher";
}

function podText(entry) {
  return `${entry.step || "pod"} ${entry.job ? `${entry.job}/` : ""}${entry.rank} · ${entry.phase} · ${entry.pod}`;
}

function containerText(entry) {
  const state = entry.state === "terminated" ? `exit code ${entry.exit_code}` : entry.state;
  return `${entry.container}${entry.init ? " (init)" : ""} · ${state}${entry.reason ? `, ${entry.reason}` : ""}`;
}

function runText(entry, number) {
  if (!entry.restarts) return "the only one";
  return number === entry.restarts ? `after restart ${number}` : "before the last restart";
}
