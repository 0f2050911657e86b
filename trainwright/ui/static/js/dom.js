// What views need of Preact and htm: the one place that names them. Preact's hooks import `preact`, which index.html maps to its file.
import htm from "../vendor/htm.module.js";
import { h } from "../vendor/preact.module.js";

export { createContext, h, render } from "../vendor/preact.module.js";
export {
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../vendor/preact.hooks.module.js";
export const html = htm.bind(h);
