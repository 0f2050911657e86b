// Buttons that change something: each asks first, naming the object and the consequence, and says why where it is not offered.
// A request carries the UID or the digest that the reader saw, so that it cannot hit what has replaced that.
import { getJson, postJson, query } from "./api.js";
import { html, useCallback, useEffect, useState } from "./dom.js";
import { Button, Confirmation, Notice, Problem, useLoaded } from "./widgets.js";

const MAX_REASON = 500;
const OF_JOBS = [
  [
    "suspend",
    "Suspend",
    "Its pods end, and what they have not saved is lost. Checkpoints stay, and the job can be resumed.",
    "primary",
  ],
  ["resume", "Resume", "Its pods start again, and training continues from its newest checkpoint, if its program looks for one.", "primary"],
  [
    "cancel",
    "Stop for good",
    "The TrainJob is deleted with its pods and their logs. Checkpoints in a workspace and exports stay. It cannot be resumed.",
    "danger",
  ],
  [
    "delete",
    "Delete",
    "The TrainJob is deleted with everything that it owns: pods, logs, and a claim that was made for it alone. This cannot be undone.",
    "danger",
  ],
];

/**
 * The actions on a TrainJob. `job` has namespace, name, uid; `state` is anything that changes when its state does, as its phase.
 * `onDone` is called with what the server answers. A job that has ended is deleted, any other stopped.
 */
export function JobActions({ job, state, onDone = () => {} }) {
  const where = query({ namespace: job.namespace, name: job.name });
  const { value, problem, reload } = useLoaded((signal) => getJson(`access${where}`, { signal }), [where, job.uid, state]);
  const [open, setOpen] = useState("");
  const [message, setMessage] = useState("");
  useEffect(() => setMessage(""), [job.uid]);
  const action = useCallback(
    () => postJson(`actions/${open}`, { namespace: job.namespace, name: job.name, uid: job.uid }),
    [open, job.namespace, job.name, job.uid],
  );
  const done = useCallback(
    (result) => {
      setOpen("");
      setMessage(result.message || "");
      reload();
      onDone(result);
    },
    [onDone],
  );
  if (problem) return html`<${Problem} problem=${problem} />`;
  if (!value) return html`<p class="muted">Checking what you may do …</p>`;
  const replaced = value.uid && value.uid !== job.uid ? "another job has this name now; open it again" : "";
  const shown = OF_JOBS.filter(([id]) => (value.ended ? id === "delete" : id !== "delete"));
  const chosen = OF_JOBS.find(([id]) => id === open);
  const note = Object.values(value.actions).find((each) => each.note)?.note;
  return html`<div class="actions-box">
    <div class="actions" role="group" aria-label=${`Actions on ${job.name}`}>
      ${shown.map(([id, title, , kind]) => {
        const why = replaced || value.actions[id].reason;
        return html`<${Button} key=${id} kind=${kind === "danger" ? kind : ""} why=${why} onClick=${() => setOpen(id)}>${title}<//>`;
      })}
    </div>
    <${Reasons} actions=${shown.map(([id, title]) => [title, replaced || value.actions[id].reason])} />
    ${note ? html`<p class="muted">${note}</p>` : ""}
    ${message ? html`<${Notice}>${message}<//>` : ""}
    ${chosen
      ? html`<${Confirmation}
          title=${`${chosen[1]}: TrainJob ${job.namespace}/${job.name}`}
          consequence=${chosen[2]}
          verb=${chosen[1]}
          kind=${chosen[3]}
          action=${action}
          onDone=${done}
          onClose=${() => setOpen("")}
        />`
      : ""}
  </div>`;
}

/** Lets an alias name an export. `shown` is the alias as the page shows it: `{name, current}`; `target` has uri and digest. */
export function PromoteButton({ target, shown, why = "", onDone = () => {} }) {
  const [open, setOpen] = useState(false);
  const [reason, setReason] = useState("");
  const current = shown.current;
  const blocked = why || shown.problem || (current && current.digest === target.digest ? `it is ${shown.name} already` : "");
  const action = useCallback(
    () =>
      postJson("actions/promote", {
        uri: target.uri,
        digest: target.digest,
        expected: current ? current.digest : "",
        alias: shown.name,
        reason,
      }),
    [target.uri, target.digest, current && current.digest, shown.name, reason],
  );
  const done = (result) => {
    setOpen(false);
    onDone(result);
  };
  const title = `Promote to ${shown.name}`;
  return html`<span>
    <${Button} why=${blocked} onClick=${() => setOpen(true)}>${title}<//>
    ${open
      ? html`<${Confirmation}
          title=${title}
          consequence=${`${shown.name} will name ${target.uri}${current ? ` in place of ${current.uri}, which stays in the history` : ""}. Pipelines and servers that read ${shown.name} get it from then on.`}
          verb="Promote"
          kind="primary"
          action=${action}
          onDone=${done}
          onClose=${() => setOpen(false)}
        >
          <${ReasonField} reason=${reason} onReason=${setReason} />
        <//>`
      : ""}
  </span>`;
}

/** Restores the previous export of an alias. `root` is the URI of the folder of all exports, `shown` the alias. */
export function RollBackButton({ root, shown, why = "", onDone = () => {} }) {
  const [click, setClick] = useState("");
  const [reason, setReason] = useState("");
  const current = shown.current;
  const before = shown.history.find((entry) => current && entry.digest !== current.digest);
  const blocked = why || shown.problem || (shown.canRollBack && before ? "" : `${shown.name} has named no other export before`);
  const action = useCallback(
    () => postJson("actions/roll-back", { uri: root, expected: current ? current.digest : "", click, alias: shown.name, reason }),
    [root, current && current.digest, click, shown.name, reason],
  );
  const done = (result) => {
    setClick("");
    onDone(result);
  };
  const title = `Roll ${shown.name} back`;
  return html`<span>
    <${Button} kind="danger" why=${blocked} onClick=${() => setClick(newClick())}>${title}<//>
    ${click && current && before
      ? html`<${Confirmation}
          title=${title}
          consequence=${`${shown.name} names ${current.uri} now, and will name ${before.uri} again, the export before it.`}
          verb="Roll back"
          action=${action}
          onDone=${done}
          onClose=${() => setClick("")}
        >
          <${ReasonField} reason=${reason} onReason=${setReason} />
        <//>`
      : ""}
  </span>`;
}

/** Why actions are not offered, as text: a tooltip alone is nothing for touch screens. */
function Reasons({ actions }) {
  const given = actions.filter(([, reason]) => reason);
  if (!given.length) return null;
  const byReason = new Map();
  for (const [title, reason] of given) byReason.set(reason, [...(byReason.get(reason) || []), title]);
  return html`<p class="muted reasons">${[...byReason].map(([reason, titles]) => `${titles.join(", ")}: ${reason}`).join(" · ")}</p>`;
}

function ReasonField({ reason, onReason }) {
  return html`<label class="field"
    >Reason, recorded with the change
    <input name="reason" value=${reason} maxlength=${MAX_REASON} onInput=${(event) => onReason(event.target.value)} />
  </label>`;
}

/** Names this decision: sent twice, it is carried out once. */
function newClick() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
