// Which log is shown: the pod by its rank, the container, and the run of a container that has restarted.
import { html } from "../dom.js";

/** @returns {{entry, run}|null} the container and run that the address names, else the training's first rank. */
export function chosenLog(containers, values) {
  const [pod, container, run] = ["pod", "container", "run"].map((name) => values.get(name));
  const ofPod = containers.filter((entry) => entry.pod === pod);
  const candidates = ofPod.length ? ofPod : containers;
  const isDefault = (each) => each.main && (ofPod.length || ["node", "launcher"].includes(each.step));
  const entry = candidates.find((each) => each.container === container) || candidates.find(isDefault) || candidates[0];
  return entry ? { entry, run: runsOf(entry).find((number) => String(number) === run) ?? entry.restarts } : null;
}

/** `onChoose` gets the values of the address to change. */
export function LogChoice({ containers, entry, run, onChoose }) {
  const pods = containers.filter((each, number) => containers.findIndex((other) => other.uid === each.uid) === number);
  const ofPod = containers.filter((each) => each.uid === entry.uid);
  const choose = (values) => onChoose({ pod: entry.pod, container: entry.container, run: "", ...values });
  const select = (label, value, texts, onValue) => html`<label class=${label === "Rank" ? "field grow" : "field"}>
    ${label}
    <select value=${String(value)} onChange=${(event) => choose(onValue(event.target.value))}>
      ${texts.map(([each, text]) => html`<option key=${each} value=${String(each)}>${text}</option>`)}
    </select>
  </label>`;
  return html`<div class="filters">
    ${select("Rank", entry.pod, pods.map((each) => [each.pod, podText(each)]), (pod) => ({ pod, container: "" }))}
    ${select("Container", entry.container, ofPod.map((each) => [each.container, containerText(each)]), (container) => ({ container }))}
    ${select("Run", run, runsOf(entry).map((number) => [number, runText(entry, number)]), (number) => ({ run: number }))}
  </div>`;
}

/** The runs whose logs a node keeps, the current one first. */
function runsOf(entry) {
  return entry.restarts ? [entry.restarts, entry.restarts - 1] : [0];
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
