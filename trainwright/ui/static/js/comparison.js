// Rows of a table that compares runs: the figures of their newest evaluations, and the last values of their trainings. Pure.
import { ordered } from "./curves.js";
import { figure } from "./format.js";
import { ownValue } from "./own_value.js";

/**
 * @param {{page: object, trainings: {name: string, series: Object<string, [number, number|null][]>}[]}[]} runs
 * @returns {{notes: string[], rows: string[][]}} each row is the name of a metric, then a text for each run, empty where the run lacks
 *   it; `notes` say which figures do not compare.
 */
export function comparison(runs) {
  const evaluations = runs.map((run) => run.page.evaluation);
  const of = (when) => evaluations.map((each) => each && named(each, each[when]));
  const marks = evaluations.map((each) => each?.mark || "");
  return {
    notes: notesOn(evaluations.filter(Boolean)),
    rows: [
      ...rowsOf(of("after")),
      ...rowsOf(of("before"), (name) => `${name}, base model`),
      ...rowsOf(evaluations.map((each) => each && { "rows evaluated": each.rows ?? undefined })),
      ...(marks.some(Boolean) ? [["rows also trained on", ...marks]] : []),
      ...rowsOf(runs.map((run) => lastValues(run.trainings)), (name) => `training: ${name}, last value`),
    ],
  };
}

/** Losses of other rows, or of rows that the model has seen, say nothing about which model is better. */
function notesOn(evaluations) {
  const differ = (name) => new Set(evaluations.map((each) => each[name]).filter(Boolean)).size > 1;
  const notes = [];
  if (differ("rowsDigest")) notes.push("The runs were evaluated on different rows: their figures do not compare.");
  if (evaluations.some((each) => each.mark)) notes.push("Some rows are also trained on: the figures of these runs look better than they are.");
  return notes;
}

/** The figures of an evaluation, the loss under the name of what it is of, without the mark: a training loss is another metric. */
function named({ loss, of }, figures) {
  const entries = Object.entries(figures).map(([name, value]) => [name === loss.name ? of.replace(/ \(.*/, "") : name, value]);
  return Object.fromEntries(entries);
}

function rowsOf(values, title = (name) => name) {
  const names = new Set(values.flatMap((each) => Object.keys(each || {})));
  return ordered(names)
    .flat()
    .map((name) => [title(name), ...values.map((each) => shown(ownValue(each, name)))]);
}

/** The last value of each metric; of several trainings, under their names. */
function lastValues(trainings) {
  const entries = trainings.flatMap(({ name, series }) =>
    Object.entries(series).map(([metric, points]) => [trainings.length > 1 && name ? `${metric} of ${name}` : metric, points.at(-1)?.[1]]),
  );
  return Object.fromEntries(entries);
}

/** `undefined` is a metric that a run lacks, null a value that is not finite. */
function shown(value) {
  if (value === undefined) return "";
  return value === null ? "not finite" : typeof value === "boolean" ? String(value) : figure(value);
}
