// The timeline of a job as bars over time, one line for the job and one for each pod's place; and as a list for screen readers.
import { html, useEffect, useRef, useState } from "../dom.js";
import { duration, localTime, secondsBetween } from "../format.js";
import { useTick } from "../widgets.js";

const LANE = 26;
const TICKS = 5;

/** `timeline` is that of the server: times of the job, and lanes with spans. */
export function TimelineChart({ timeline }) {
  const isActive = !timeline.until;
  useTick(isActive ? 1000 : 0);
  const [box, width] = useWidth();
  const begin = Date.parse(timeline.since);
  const now = Date.now();
  const end = Math.max(begin + 1000, isActive ? now : latest(timeline));
  const at = (time) => (100 * ((time ? Date.parse(time) : now) - begin)) / (end - begin);
  const seconds = (end - begin) / 1000;
  return html`<div>
    <div class="timeline" ref=${box} role="img" aria-label=${`Timeline: ${duration(seconds)}. ${timeline.lanes.length} lines.`}>
      <div class="timeline-ticks" aria-hidden="true">
        ${Array.from({ length: TICKS }, (_, number) => (number * seconds) / (TICKS - 1)).map(
          (tick, number) => html`<span key=${number} style=${{ left: `${(100 * number) / (TICKS - 1)}%` }}>${number ? `+${duration(tick)}` : shortTime(timeline.since, width)}</span>`,
        )}
      </div>
      ${timeline.lanes.map(
        (lane) =>
          html`<div class="lane" key=${lane.name} style=${{ height: `${LANE}px` }}>
            <span class="lane-name" title=${lane.name}>${lane.name}</span>
            <span class="lane-bars">
              ${lane.spans.map((span) => {
                const left = Math.max(0, Math.min(100, at(span.since)));
                const right = Math.max(left, Math.min(100, at(span.until)));
                return html`<span
                  key=${span.since + span.kind}
                  class=${`span span-${span.kind}`}
                  style=${{ left: `${left}%`, width: `max(4px, ${right - left}%)` }}
                  title=${spanText(span)}
                ></span>`;
              })}
            </span>
          </div>`,
      )}
      <${Legend} lanes=${timeline.lanes} />
    </div>
    <details class="timeline-list">
      <summary>Timeline as text</summary>
      <ul>
        ${timeline.lanes.map(
          (lane) =>
            html`<li key=${lane.name}>
              <b>${lane.name}</b>
              <ul>
                ${lane.spans.map((span) => html`<li key=${span.since + span.kind}>${spanText(span)}</li>`)}
              </ul>
            </li>`,
        )}
      </ul>
    </details>
  </div>`;
}

function Legend({ lanes }) {
  const kinds = [...new Set(lanes.flatMap((lane) => lane.spans.map((span) => span.kind)))];
  return html`<div class="legend" aria-hidden="true">
    ${kinds.map((kind) => html`<span key=${kind} class="legend-entry"><span class=${`span-swatch span-${kind}`}></span>${kind}</span>`)}
  </div>`;
}

function spanText(span) {
  const length = secondsBetween(span.since, span.until);
  return `${span.kind}, from ${localTime(span.since)}${length >= 1 ? `, ${span.until ? "" : "so far "}${duration(length)}` : ""}${span.note ? `: ${span.note}` : ""}`;
}

function shortTime(text, width) {
  const moment = new Date(text);
  return width < 500 ? moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : moment.toLocaleString();
}

function latest(timeline) {
  const times = timeline.lanes.flatMap((lane) => lane.spans.map((span) => span.until || span.since));
  return Math.max(0, ...[timeline.until, ...times].map((time) => Date.parse(time)).filter(Number.isFinite));
}

function useWidth() {
  const box = useRef(null);
  const [width, setWidth] = useState(800);
  useEffect(() => {
    const sizes = new ResizeObserver(([entry]) => setWidth(entry.contentRect.width));
    sizes.observe(box.current);
    return () => sizes.disconnect();
  }, []);
  return [box, width];
}
