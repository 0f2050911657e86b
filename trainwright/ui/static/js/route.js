// Addresses within the page: `#/jobs/NAMESPACE/NAME/TAB?filter=...`. All state that a link should carry is in there.
import { useEffect, useState } from "./dom.js";

/** @returns {{parts: string[], values: URLSearchParams}} the address of this moment. */
export function currentRoute() {
  const [route, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: route.split("/").filter(Boolean).map(decoded), values: new URLSearchParams(query) };
}

/** @returns {string} the address of a view, for `href`. */
export function to(...parts) {
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

/** Follows the address. */
export function useRoute() {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    const follow = () => setRoute(currentRoute());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return route;
}

/** Changes values of the address without a new entry in the history; empty ones are left out. */
export function setValues(changes) {
  const { parts, values } = currentRoute();
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null) values.delete(name);
    else values.set(name, value);
  }
  const query = values.toString();
  history.replaceState(null, "", to(...parts) + (query ? `?${query}` : ""));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
