// TrainJobs as the list shows them: kept up to date by one stream, filtered and sorted. Pure, but for the hook at the end.
import { openStream, query } from "./api.js";
import { useEffect, useRef, useState } from "./dom.js";
import { ownValue } from "./own_value.js";

export const PHASES = ["Queued", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed"];
const ORDER = new Map(PHASES.map((phase, number) => [phase, number]));

/** What a job can be sorted by: a function to a number or a text. */
export const SORTS = {
  name: (row) => row.name,
  namespace: (row) => row.namespace,
  runtime: (row) => row.runtime,
  phase: (row) => ORDER.get(row.phase) ?? PHASES.length,
  progress: (row) => row.percent ?? -1,
  nodes: (row) => row.nodes,
  age: (row) => -row.moment,
  creator: (row) => row.creator.name,
};

/** Adds what filtering and sorting need, once for each row. */
export function prepared(row) {
  const words = [row.namespace, row.name, row.runtime, row.phase, row.reason, row.queue, row.creator.name, row.creator.run];
  return { ...row, key: `${row.namespace}/${row.name}`, moment: Date.parse(row.created) || 0, text: words.join(" ").toLowerCase() };
}

/** @returns {Map<string, object>} the rows after a message of the stream; `rows` itself is not changed. */
export function applied(rows, message) {
  if (message.type === "rows") return new Map(message.rows.map((row) => keyed(prepared(row))));
  if (message.type !== "changes") return rows;
  const changed = new Map(rows);
  for (const row of message.rows) changed.set(...keyed(prepared(row)));
  for (const [namespace, name] of message.gone) changed.delete(`${namespace}/${name}`);
  return changed;
}

/** @returns {object[]} rows that contain all words, and are in one of the phases; all phases if none is chosen. */
export function filtered(rows, search, phases) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => (!phases.size || phases.has(row.phase)) && words.every((word) => row.text.includes(word)));
}

/** @returns {object[]} a sorted copy: by `sort`, then the newest first, then by name. */
export function sorted(rows, sort, descending) {
  const value = ownValue(SORTS, sort) || SORTS.age;
  const sign = descending ? -1 : 1;
  return [...rows].sort((one, other) => sign * compared(value(one), value(other)) || other.moment - one.moment || compared(one.key, other.key));
}

/** @returns {Map<string, number>} how many rows are in each phase. */
export function phaseCounts(rows) {
  const counts = new Map();
  for (const row of rows) counts.set(row.phase, (counts.get(row.phase) || 0) + 1);
  return counts;
}

/** Follows the jobs of a namespace, "" for all. `rows` is null before the first list. */
export function useJobRows(namespace) {
  const [state, setState] = useState({ rows: null, live: false, problem: null });
  const rows = useRef(new Map());
  useEffect(() => {
    const control = new AbortController();
    rows.current = new Map();
    setState({ rows: null, live: false, problem: null });
    const follow = (message) => {
      if (message.type === "problem") {
        setState((before) => ({ ...before, problem: message.problem }));
        return;
      }
      rows.current = applied(rows.current, message);
      const all = [...rows.current.values()];
      setState((before) => ({ ...before, rows: all, problem: message.type === "rows" ? message.problem : before.problem }));
    };
    const tell = ({ live, problem }) => setState((before) => ({ ...before, live, problem: live ? before.problem : problem }));
    openStream(`trainjobs/stream${query({ namespace })}`, follow, { signal: control.signal, onState: tell });
    return () => control.abort();
  }, [namespace]);
  return state;
}

function keyed(row) {
  return [row.key, row];
}

function compared(one, other) {
  if (one === other) return 0;
  return one < other ? -1 : 1;
}
