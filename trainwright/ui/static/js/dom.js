// What views need of Preact, htm and hooks, from the vendored bundle: the one place that names it.
export {
  createContext,
  h,
  html,
  render,
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../vendor/preact-htm.js";
