// Series of figures for curves: of the files of a run and of live reports, merged by step. Pure.

/**
 * @param {{series: Object<string, [number, number|null][]>, axis?: string}|null} history of the run's files
 * @param {{axis: string, points: [number, Object<string, number>][]}|null} live reported while the page was open
 * @returns {Map<string, Map<number, number|null>>} for each metric, values by step; where both have one, the file's.
 */
export function merged(history, live) {
  const metrics = new Map();
  const put = (name, step, value) => {
    if (!metrics.has(name)) metrics.set(name, new Map());
    metrics.get(name).set(step, value);
  };
  for (const [step, values] of live?.points || []) {
    for (const [name, value] of Object.entries(values)) put(name, step, value);
  }
  for (const [name, points] of Object.entries(history?.series || {})) {
    for (const [step, value] of points) put(name, step, value);
  }
  return metrics;
}

/**
 * Lays several runs over each other.
 * @param {{name: string, values: Map<number, number|null>}[]} runs
 * @returns {{data: (number|null)[][], names: string[]}} in the form that uPlot takes: steps, then a series for each run, null where a run
 *   has no value, undefined where it has none at that step but continues.
 */
export function laidOver(runs) {
  const steps = [...new Set(runs.flatMap((run) => [...run.values.keys()]))].sort((one, other) => one - other);
  const data = [steps, ...runs.map((run) => steps.map((step) => (run.values.has(step) ? run.values.get(step) : undefined)))];
  return { data, names: runs.map((run) => run.name) };
}

const FIRST = [
  /^(train[/_]|training_)?loss$/,
  /^(eval|val|valid|validation|test)[/_]loss$/,
  /loss$/,
  /^(train[/_])?(learning_rate|lr)$/,
  /(^|[/_])accurac(y|ies)$/,
  /(^|[/_])margins?$/,
  /(^|[/_])grad_norm$/,
];

/** @returns {[string[], string[]]} the names that people look for, in that order, and the others. */
export function ordered(names) {
  const rank = (name) => FIRST.findIndex((pattern) => pattern.test(name));
  const sorted = [...names].sort((one, other) => rank(one) - rank(other) || one.localeCompare(other));
  return [sorted.filter((name) => rank(name) >= 0), sorted.filter((name) => rank(name) < 0)];
}

/**
 * @param {(number|null|undefined)[]} values
 * @param {number} weight 0 for none, towards 1 for more
 * @returns {(number|null|undefined)[]} the exponential moving average, without the bias of its start.
 */
export function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let norm = 0;
  return values.map((value) => {
    if (!Number.isFinite(value)) return value;
    sum = sum * weight + value * (1 - weight);
    norm = norm * weight + (1 - weight);
    return sum / norm;
  });
}
