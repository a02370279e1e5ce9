// The charts. The server sends as many columns as there are pixels, the least and greatest of each kept; zooming asks for
// finer ones.
import { onChange } from "/static/page.js";

const COLUMNS = 600;
const HUES = ["#3b7dd8", "#d9822b", "#2f9e6e", "#b0509b", "#8a6d3b", "#5b6ad0", "#c2483d", "#3ba3b8", "#7f9e2f", "#9467bd"];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const get = async (path) => {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
};

const view = { axis: "step", log: false, last: 0, from: null, to: null };
let curve = null;
let looks = { probes: { steps: [], mean: [], arms: {} }, marks: { checkpoints: [], pivots: [], restarts: [], forks: [] } };

function axes(extra = {}) {
  const line = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  return [line, { ...line, size: 60, ...extra }];
}

function size(box) {
  return { width: Math.max(240, box.clientWidth), height: box.classList.contains("small") ? 180 : 290 };
}

const charts = new Map();
/** Draw anew only when the series have changed; else the data alone. */
function show(id, shape, data, options) {
  const box = document.getElementById(id);
  if (!box || !data[0].length) return;
  const known = charts.get(id);
  if (known && known.shape === shape) {
    known.plot.setData(data);
    return;
  }
  known?.plot.destroy();
  charts.set(id, { shape, plot: new uPlot({ ...size(box), ...options }, data, box) });
}

function xOf(steps, times) {
  if (view.axis === "step") return steps;
  return view.axis === "clock" ? times : times.map((time) => (time - times[0]) / 3600);
}

/** Where a step is on the axis that is shown. */
function place(step) {
  if (view.axis === "step") return step;
  const { steps, times } = curve;
  if (!steps.length || step < steps[0] || step > steps.at(-1)) return null;
  let i = steps.findIndex((one) => one >= step);
  const part = i > 0 ? (step - steps[i - 1]) / (steps[i] - steps[i - 1]) : 0;
  const time = i > 0 ? times[i - 1] + part * (times[i] - times[i - 1]) : times[i];
  return view.axis === "clock" ? time : (time - times[0]) / 3600;
}

const MARKS = { checkpoints: ["--line", [2, 4]], restarts: ["--warning", [6, 4]], pivots: ["--alarm", []], forks: ["--good", []] };
function drawMarks(plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  for (const [kind, [name, dash]] of Object.entries(MARKS)) {
    ctx.strokeStyle = colour(name);
    ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
    for (const step of looks.marks[kind]) {
      const at = place(step);
      if (at === null || at < plot.scales.x.min || at > plot.scales.x.max) continue;
      const x = plot.valToPos(at, "x", true);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
  }
  ctx.restore();
}

function drawLoss() {
  const x = xOf(curve.steps, curve.times);
  const data = [x, curve.loss_min, curve.loss_max, curve.ema_min, curve.ema_max];
  const raw = { stroke: colour("--faint"), width: 1, points: { show: false } };
  const ema = { stroke: colour("--blue"), width: 2, points: { show: false } };
  show("chart-loss", `${view.axis} ${view.log}`, data, {
    scales: { x: { time: view.axis === "clock" }, y: { distr: view.log ? 3 : 1 } },
    axes: axes(),
    series: [
      { label: { step: "step", clock: "time", hours: "hours" }[view.axis] },
      { ...raw, label: "least" },
      { ...raw, label: "greatest" },
      { ...ema, label: "smoothed" },
      { ...ema, label: "at most" },
    ],
    bands: [{ series: [2, 1], fill: colour("--faint") + "55" }],
    cursor: { drag: { x: true, y: false, setScale: false } },
    hooks: { drawAxes: [drawMarks], setSelect: [zoom] },
  });
}

/** Finer columns for what was selected with the mouse. */
function zoom(plot) {
  if (plot.select.width < 4) return;
  const from = plot.posToIdx(plot.select.left);
  const to = plot.posToIdx(plot.select.left + plot.select.width);
  plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  view.from = curve.steps[from];
  view.to = curve.steps[Math.min(to + 1, curve.steps.length - 1)];
  press("last", null);
  load();
}

function drawProbes() {
  const { steps, mean, arms } = looks.probes;
  const names = Object.keys(arms);
  show("chart-probe", names.join(), [steps, mean, ...names.map((arm) => arms[arm])], {
    scales: { x: { time: false } },
    axes: axes(),
    series: [
      { label: "step" },
      { label: "mean", stroke: colour("--text"), width: 2 },
      ...names.map((arm, i) => ({ label: arm, stroke: HUES[i % HUES.length], width: 1 })),
    ],
  });
}

function drawArms(found) {
  const names = Object.keys(found.arms);
  const series = names.map((arm, i) => ({ label: arm, stroke: HUES[i % HUES.length], width: 1, points: { show: false } }));
  const common = { scales: { x: { time: false } }, axes: axes() };
  show("chart-arms", names.join(), [found.steps, ...names.map((arm) => found.arms[arm].loss)], {
    ...common,
    series: [{ label: "step" }, ...series.map((one) => ({ ...one, spanGaps: true }))],
  });
  const sums = found.steps.map(() => 0);
  const stacked = names.map((arm) => found.arms[arm].share.map((share, i) => (sums[i] += share ?? 0)));
  show("chart-shares", names.join(), [found.steps, ...stacked.toReversed()], {
    ...common,
    scales: { ...common.scales, y: { range: [0, 1] } },
    series: [
      { label: "step" },
      ...series.toReversed().map((one, i) => ({
        ...one,
        fill: one.stroke + "88",
        value: (plot, value, at, index) => {
          if (value === null || value === undefined) return "–";
          const below = i + 2 < plot.data.length ? plot.data[i + 2][index] : 0;
          return `${(100 * (value - below)).toFixed(1)} %`;
        },
      })),
    ],
  });
}

let busy = false;
let onceMore = false;
async function load() {
  onceMore = busy; // what was asked for meanwhile is fetched when this one is drawn
  if (busy) return;
  busy = true;
  try {
    const range = view.from !== null ? `&from=${view.from}&to=${view.to}` : "";
    const last = view.last && curve && view.from === null ? `&from=${Math.max(1, curve.last - view.last + 1)}` : range;
    curve = await get(`/api/curve?columns=${COLUMNS}${last}`);
    drawLoss();
    const others = [get("/api/probes"), get(`/api/arms?columns=200${last}`)];
    looks = await others[0];
    drawProbes();
    drawArms(await others[1]);
  } catch (error) {
    console.info(`the charts wait: ${error.message}`); // the page says what is wrong
  } finally {
    busy = false;
    if (onceMore) load();
  }
}

function press(kind, value) {
  for (const button of document.querySelectorAll(`button[data-${kind}]`)) {
    button.setAttribute("aria-pressed", String(button.dataset[kind] === value));
  }
}

for (const button of document.querySelectorAll("button[data-last]")) {
  button.addEventListener("click", () => {
    Object.assign(view, { last: Number(button.dataset.last), from: null, to: null });
    press("last", button.dataset.last);
    load();
  });
}
for (const button of document.querySelectorAll("button[data-axis]")) {
  button.addEventListener("click", () => {
    view.axis = button.dataset.axis;
    press("axis", view.axis);
    if (curve) drawLoss();
  });
}
document.getElementById("log")?.addEventListener("click", (event) => {
  view.log = !view.log;
  event.currentTarget.setAttribute("aria-pressed", String(view.log));
  if (curve) drawLoss();
});

function again() {
  for (const { plot } of charts.values()) plot.destroy();
  charts.clear();
  load();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) {
    width = innerWidth;
    again();
  }
});

let drawn = -1;
let waits = 0;
onChange((found) => {
  if (found.step === drawn || view.from !== null || ++waits % 2) return;
  drawn = found.step;
  load();
});
if (document.getElementById("chart-loss")) load();
