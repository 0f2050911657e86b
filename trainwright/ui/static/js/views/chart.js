// A chart of one metric over steps: uPlot, in the colours of the page, with its values as a table for screen readers.
import uPlot from "../../vendor/uPlot.esm.js";
import { ordered } from "../curves.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../dom.js";
import { counted, figure } from "../format.js";

const HEIGHT = 260;
const COLOURS = ["#2f6fde", "#d1495b", "#2a8c55", "#9a5fd0", "#c77b0a", "#0f8a9d", "#8a6d3b", "#d0449a"];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const MOST_ROWS = 200;

/** The charts of metrics: those that people look for, and the others on demand. `chartOf(name)` is the chart of one. */
export function Charts({ names, chartOf }) {
  const [showsAll, setShowsAll] = useState(false);
  const [first, others] = ordered(names);
  if (!first.length || !others.length) return html`<div class="charts">${[...first, ...others].map(chartOf)}</div>`;
  return html`<div>
    <div class="charts">${first.map(chartOf)}</div>
    <details onToggle=${(event) => setShowsAll(event.target === event.currentTarget ? event.target.open : showsAll)}>
      <summary>${counted(others.length, "other metric")}</summary>
      <div class="charts">${showsAll ? others.map(chartOf) : ""}</div>
    </details>
  </div>`;
}

/** `data` and `names` are those of `laidOver`; `logarithmic` scales the values. */
export function Chart({ title, data, names, axis, logarithmic = false }) {
  const box = useRef(null);
  const plot = useRef(null);
  const theme = useTheme();
  const shape = JSON.stringify([title, names, axis, logarithmic, theme]);
  useLayoutEffect(() => {
    const width = Math.max(200, box.current.clientWidth);
    plot.current = new uPlot(options({ figureBox: box.current.parentElement, names, axis, logarithmic, width }), data, box.current);
    plot.current.root.querySelector(".u-legend")?.setAttribute("role", "presentation"); // the values are in the table below
    const sizes = new ResizeObserver(([entry]) => plot.current.setSize({ width: Math.max(200, entry.contentRect.width), height: HEIGHT }));
    sizes.observe(box.current);
    return () => {
      sizes.disconnect();
      plot.current.destroy();
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<figure class="chart">
    <figcaption>${title}</figcaption>
    <div ref=${box} class="chart-box" role="img" aria-label=${summary(title, data, names)}></div>
    <details>
      <summary>${title} as a table</summary>
      <div class="table-box" tabindex="0" role="region" aria-label=${`${title} as a table`}>
        <table class="table" aria-label=${title}>
          <thead><tr><th scope="col">${axis}</th>${names.map((name) => html`<th key=${name} scope="col">${name}</th>`)}</tr></thead>
          <tbody>
            ${data[0].slice(-MOST_ROWS).map((step, row) => {
              const at = Math.max(0, data[0].length - MOST_ROWS) + row;
              return html`<tr key=${step}>
                <td data-column=${axis}>${step}</td>
                ${names.map((name, number) => html`<td key=${name} data-column=${name}>${figure(data[number + 1][at])}</td>`)}
              </tr>`;
            })}
          </tbody>
        </table>
      </div>
    </details>
  </figure>`;
}

function options({ figureBox, names, axis, logarithmic, width }) {
  const { color: text, borderTopColor: line } = getComputedStyle(figureBox);
  const axisStyle = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  return {
    width,
    height: HEIGHT,
    scales: { x: { time: false }, y: logarithmic ? { distr: 3 } : {} },
    axes: [{ ...axisStyle, label: axis, labelSize: 22 }, { ...axisStyle, size: 70, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : figure(tick, 4))) }],
    series: [
      { label: axis },
      ...names.map((name, number) => ({
        label: name,
        stroke: COLOURS[number % COLOURS.length],
        dash: DASHES[Math.floor(number / COLOURS.length) % DASHES.length],
        width: 2,
        spanGaps: false,
        points: { size: 5 },
        value: (_, value) => figure(value),
      })),
    ],
    cursor: { focus: { prox: 24 }, drag: { x: true, y: false }, sync: { key: "curves" } },
    legend: { live: true },
  };
}

function summary(title, data, names) {
  const parts = names.map((name, number) => {
    const values = data[number + 1].filter(Number.isFinite);
    if (!values.length) return `${name}: no values`;
    return `${name}: from ${figure(values[0])} to ${figure(values[values.length - 1])}, lowest ${figure(Math.min(...values))}`;
  });
  return `${title}. ${parts.join(". ")}`;
}

/** Renders again when the colours of the page change: a chart has them drawn in. */
function useTheme() {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const change = () => setTurn((before) => before + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("themechange", change);
    system.addEventListener("change", change);
    return () => {
      removeEventListener("themechange", change);
      system.removeEventListener("change", change);
    };
  }, []);
  return turn;
}
