// The visible part of a text with millions of lines of one height. Browsers limit the height of elements, to 17 million pixels or
// more: a longer text has a shorter scroll bar, on which a long drag moves by proportion, and small steps still move by lines.
import { useCallback, useLayoutEffect, useRef, useState } from "./dom.js";

const MAX_PIXELS = 8000000;
const MARGIN_LINES = 10;
const PAGES = 100;
const JUMP_VIEWS = 3; // a longer way at once is a drag of the scroll bar, not a step of a wheel or a key

/**
 * How positions in the whole text and positions of the scroll bar belong together. The text is cut into pages; in each, both
 * differ by a fixed offset.
 * @returns {{height, offsetAt, offsetOfScroll}} the height of the scrolled element, the offset for a position in the text, and
 *   the offset after a jump to a position of the scroll bar.
 */
export function scaling(total, viewHeight) {
  const height = Math.min(total, MAX_PIXELS);
  if (total <= height) return { height, offsetAt: () => 0, offsetOfScroll: () => 0 };
  const pageHeight = height / PAGES;
  const pages = Math.floor(total / pageHeight);
  const step = (total - height) / (pages - 1);
  const offsetAt = (position) => Math.round(Math.min(pages - 1, Math.floor(position / pageHeight)) * step);
  const ratio = (total - viewHeight) / Math.max(1, height - viewHeight);
  return { height, offsetAt, offsetOfScroll: (scroll) => offsetAt(Math.max(0, scroll * ratio)) };
}

/**
 * Follows the scroll position of an element with `count` lines. While `follow` is true the last line stays in view; `onFollow` is
 * called when the reader scrolls to the end or away from it.
 * @returns {{box, canvas, top, first, last, offset, viewHeight, atEnd, show}} a ref for the scrolling element, the height of its
 *   content, the position of the view in the text, the lines to render (`last` is excluded), where the first one is in pixels, and
 *   a function that scrolls a line into view: with `{place: "start"}` to the top.
 */
export function useLineWindow(count, lineHeight, { follow = false, onFollow = () => {} } = {}) {
  const box = useRef(null);
  const now = useRef({ top: 0, offset: 0, expected: 0, total: 0, follow, onFollow });
  const [view, setView] = useState({ top: 0, offset: 0, height: 600 });
  const total = count * lineHeight;
  Object.assign(now.current, { total, follow, onFollow });

  const publish = (element) => {
    const { top, offset } = now.current;
    const height = element.clientHeight;
    const isSame = (before) => before.top === top && before.offset === offset && before.height === height;
    setView((before) => (isSame(before) ? before : { top, offset, height }));
  };
  const moveTo = useCallback((position) => {
    const element = box.current;
    if (!element) return;
    const state = now.current;
    const top = Math.max(0, Math.min(position, state.total - element.clientHeight));
    const offset = scaling(state.total, element.clientHeight).offsetAt(top);
    Object.assign(state, { top, offset });
    if (Math.abs(element.scrollTop - (top - offset)) >= 1) element.scrollTop = top - offset;
    state.expected = element.scrollTop;
    publish(element);
  }, []);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const scrolled = () => {
      const state = now.current;
      const moved = element.scrollTop - state.expected;
      if (Math.abs(moved) < 1) return publish(element);
      const before = state.top;
      if (Math.abs(moved) < JUMP_VIEWS * element.clientHeight) moveTo(element.scrollTop + state.offset);
      else {
        const offset = scaling(state.total, element.clientHeight).offsetOfScroll(element.scrollTop);
        Object.assign(state, { offset, top: element.scrollTop + offset, expected: element.scrollTop });
        publish(element);
      }
      const isAtEnd = state.top + element.clientHeight >= state.total - lineHeight / 2;
      if (isAtEnd !== state.follow && (isAtEnd || state.top < before)) state.onFollow(isAtEnd);
      return undefined;
    };
    const resized = () => (now.current.follow ? moveTo(Infinity) : publish(element));
    resized();
    element.addEventListener("scroll", scrolled, { passive: true });
    const sizes = new ResizeObserver(resized);
    sizes.observe(element);
    return () => {
      element.removeEventListener("scroll", scrolled);
      sizes.disconnect();
    };
  }, [lineHeight]);

  useLayoutEffect(() => moveTo(follow ? Infinity : now.current.top), [count, follow, lineHeight]);

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
    canvas: scaling(total, view.height).height,
    top: view.top,
    first,
    last,
    offset: first * lineHeight - view.offset,
    viewHeight: view.height,
    atEnd: view.top + view.height >= total - lineHeight,
    show,
  };
}
