// Reads values by names that others have chosen: a metric may be called `constructor`, which every object of JavaScript has.

/** @returns {any} the value of that name, undefined if the object has none of its own. */
export function ownValue(values, name) {
  return values && Object.hasOwn(values, name) ? values[name] : undefined;
}
