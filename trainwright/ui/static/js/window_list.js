// The visible part of a long list: only rows in view are in the document, so that 5,000 rows cost as much as 30.
import { useCallback, useLayoutEffect, useRef, useState } from "./dom.js";

const MARGIN_ROWS = 8;

/**
 * Follows the scroll position of an element with rows of one height.
 * @returns {{box, first, last, offset, height, show}} a ref for the scrolling element, the rows to render (`last` is excluded), where
 *   the first one is in pixels, the height of all, and a function that scrolls a row into view.
 */
export function useWindow(count, rowHeight) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const look = () => setView({ top: element.scrollTop, height: element.clientHeight });
    look();
    element.addEventListener("scroll", look, { passive: true });
    const sizes = new ResizeObserver(look);
    sizes.observe(element);
    return () => {
      element.removeEventListener("scroll", look);
      sizes.disconnect();
    };
  }, []);
  const show = useCallback(
    (row) => {
      const element = box.current;
      if (!element) return;
      const top = row * rowHeight;
      if (top < element.scrollTop) element.scrollTop = top;
      else if (top + rowHeight > element.scrollTop + element.clientHeight) element.scrollTop = top + rowHeight - element.clientHeight;
    },
    [rowHeight],
  );
  const height = count * rowHeight;
  const first = Math.max(0, Math.min(count, Math.floor(view.top / rowHeight) - MARGIN_ROWS));
  const last = Math.min(count, Math.ceil((view.top + view.height) / rowHeight) + MARGIN_ROWS);
  return { box, first, last, offset: first * rowHeight, height, show };
}
