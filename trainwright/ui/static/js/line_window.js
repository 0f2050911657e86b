// The visible part of a text with many lines of one height. Browsers limit the height of an element, to 17 million pixels or more.
import { useCallback, useLayoutEffect, useRef, useState } from "./dom.js";

const MARGIN_LINES = 10;

/**
 * Follows the scroll position of an element with `count` lines. While `follow` is true the last line stays in view; `onFollow` is
 * called when the reader scrolls to the end or away from it.
 * @returns {{box, canvas, top, first, last, offset, viewHeight, atEnd, show}} a ref for the scrolling element, the height of its
 *   content, the position of the view in the text, the lines to render (`last` is excluded), where the first one is in pixels, and
 *   a function that scrolls a line into view: with `{place: "start"}` to the top.
 */
export function useLineWindow(count, lineHeight, { follow = false, onFollow = () => {} } = {}) {
  const box = useRef(null);
  const now = useRef({ top: 0, height: 600 });
  const [view, setView] = useState({ top: 0, height: 600 });
  const total = count * lineHeight;
  Object.assign(now.current, { total, follow, onFollow });

  const publish = useCallback(({ scrollTop: top, clientHeight: height }) => {
    Object.assign(now.current, { top, height });
    setView((before) => (before.top === top && before.height === height ? before : { top, height }));
  }, []);
  const moveTo = useCallback((position) => {
    if (!box.current) return;
    box.current.scrollTop = Math.min(position, now.current.total - box.current.clientHeight);
    publish(box.current);
  }, []);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const resized = () => (now.current.follow ? moveTo(Infinity) : publish(element));
    const scrolled = () => {
      const state = now.current;
      if (element.clientHeight !== state.height) return resized(); // browsers scroll an element that becomes higher
      const moved = element.scrollTop - state.top;
      publish(element);
      const isAtEnd = state.top + element.clientHeight >= state.total - lineHeight / 2;
      if (Math.abs(moved) >= 1 && isAtEnd !== state.follow && (isAtEnd || moved < 0)) state.onFollow(isAtEnd);
      return undefined;
    };
    resized();
    element.addEventListener("scroll", scrolled, { passive: true });
    const sizes = new ResizeObserver(resized);
    sizes.observe(element);
    return () => {
      element.removeEventListener("scroll", scrolled);
      sizes.disconnect();
    };
  }, [lineHeight]);

  useLayoutEffect(() => {
    if (follow) moveTo(Infinity);
  }, [count, follow, lineHeight]);

  const show = useCallback(
    (line, { place = "near" } = {}) => {
      const element = box.current;
      if (!element) return;
      const position = line * lineHeight;
      const isVisible = position >= now.current.top && position + lineHeight <= now.current.top + element.clientHeight;
      if (place === "start") moveTo(position);
      else if (!isVisible) moveTo(position - element.clientHeight / 3);
    },
    [lineHeight],
  );
  const first = Math.max(0, Math.min(count, Math.floor(view.top / lineHeight) - MARGIN_LINES));
  const last = Math.min(count, Math.ceil((view.top + view.height) / lineHeight) + MARGIN_LINES);
  return {
    box,
    canvas: total,
    top: view.top,
    first,
    last,
    offset: first * lineHeight,
    viewHeight: view.height,
    atEnd: view.top + view.height >= total - lineHeight,
    show,
  };
}
