"use strict";
// Figures: drawn when they come into view, from the numbers beside them.
const views = new Map(); // By the id of a figure: what the reader has chosen, which outlives a refresh.
const COLORS = 10;
const DASHES = ["solid", "dash", "dot"];
const MOST_TOGETHER = 8; // Lines, of which more share no label and show no bands unasked.
const dark = matchMedia("(prefers-color-scheme: dark)");
const coarse = matchMedia("(pointer: coarse)");

// --- Plotly ------------------------------------------------------------------------------------

let unpacking;

function plotly() {
  unpacking ??= (async () => {
    const packed = atob(document.getElementById("plotly").textContent);
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    const source = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(source).text();
    document.head.append(script);
    return window.Plotly;
  })();
  return unpacking;
}

// --- What is drawn -----------------------------------------------------------------------------

function plain(text) { // Plotly reads some HTML in its texts.
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function shortened(text) {
  return text.length > 60 ? `${text.slice(0, 58)}…` : text;
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function lookOf(index) {
  return {
    color: color(`--c${index % COLORS}`),
    dash: DASHES[Math.floor(index / COLORS) % DASHES.length],
  };
}

function bandTrace(line, x, look, visible) {
  const seen = x.map((_, i) => i).filter((i) => line.low[i] !== null && line.high[i] !== null);
  const back = [...seen].reverse();
  return {
    x: [...seen, ...back].map((i) => x[i]),
    y: [...seen.map((i) => line.low[i]), ...back.map((i) => line.high[i])],
    fill: "toself", fillcolor: `${look.color}2e`, line: { width: 0 }, mode: "lines",
    hoverinfo: "skip", type: "scatter", visible,
  };
}

function lineTraces(data, view) {
  const bands = [], lines = [];
  data.lines.forEach((line, index) => {
    const x = data.axes[line.x], look = lookOf(index), visible = !view.hidden.has(line.label);
    const interval = line.low ? " (%{customdata[0]:.3~g} to %{customdata[1]:.3~g})" : "";
    if (line.low && view.bands) bands.push(bandTrace(line, x, look, visible));
    lines.push({
      x, y: line.y, name: plain(shortened(line.label)), visible, type: "scatter",
      mode: x.length === 1 ? "markers" : "lines",
      line: { color: look.color, dash: look.dash, width: data.lines.length > 20 ? 1.2 : 1.8 },
      marker: { color: look.color },
      customdata: line.low ? x.map((_, i) => [line.low[i], line.high[i]]) : undefined,
      hovertemplate: `%{y:.4~g}${interval}${line.label ? "" : "<extra></extra>"}`,
    });
  });
  return [...bands, ...lines];
}

function barTraces(data) {
  const value = (part) => data.bars.map((bar) => bar[part]);
  const reach = (a, b) => data.bars.map((bar) => (bar[a] === null ? null : bar[b] - bar[a]));
  return [{
    type: "bar", x: data.bars.map((bar) => plain(shortened(bar[0]))), y: value(1),
    marker: { color: `${color("--c0")}cc` },
    error_y: {
      type: "data", symmetric: false, array: reach(1, 3), arrayminus: reach(2, 1),
      color: color("--ink"), thickness: 1.2, width: 4,
    },
    customdata: data.bars.map((bar) => [bar[2], bar[3]]),
    hovertemplate: "%{y:.4~g} (%{customdata[0]:.3~g} to %{customdata[1]:.3~g})<extra></extra>",
  }];
}

function axis(title, log) {
  return {
    title: { text: plain(title), standoff: 8 }, type: log ? "log" : undefined,
    gridcolor: color("--line"), zerolinecolor: color("--line"), linecolor: color("--line"),
    automargin: true, uirevision: String(log), exponentformat: "SI", nticks: 7,
    hoverformat: ",.6~r",
  };
}

function levelShapes(data, view) {
  const levels = Object.entries(data.levels).filter(([, y]) => !view.logY || y > 0);
  return {
    shapes: levels.map(([, y]) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y,
      line: { color: color("--quiet"), width: 1, dash: "dot" },
    })),
    annotations: levels.map(([label, y]) => ({
      text: plain(shortened(label)), xref: "paper", x: 1, xanchor: "right", yanchor: "bottom",
      y: view.logY ? Math.log10(y) : y, showarrow: false,
      font: { size: 11, color: color("--quiet") },
    })),
  };
}

function layout(data, view) {
  const few = data.lines && data.lines.length <= MOST_TOGETHER;
  return {
    ...levelShapes(data, view),
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: color("--quiet") },
    margin: { l: 8, r: 8, t: 8, b: 8 }, showlegend: false, uirevision: "kept",
    xaxis: data.bars ? { ...axis("", false), type: "category" } : axis(data.x, view.logX),
    yaxis: axis(data.y, view.logY),
    hovermode: few ? "x unified" : "closest",
    hoverlabel: {
      bgcolor: color("--paper"), bordercolor: color("--line"), font: { color: color("--ink") },
      namelength: -1,
    },
    // On a touch screen, a finger scrolls the page unless the reader asks to zoom.
    dragmode: coarse.matches && !view.zoom ? false : "zoom",
  };
}

// --- What the reader may choose ----------------------------------------------------------------

function dataOf(figure) {
  return JSON.parse(figure.querySelector("script").textContent);
}

function viewOf(figure, data) {
  if (!views.has(figure.id)) {
    const hidden = (data.lines ?? []).filter((line) => line.hidden).map((line) => line.label);
    const few = (data.lines ?? []).length <= MOST_TOGETHER;
    views.set(figure.id, {
      hidden: new Set(hidden), bands: few, logX: false, logY: false, zoom: false, zoomed: false,
    });
  }
  return views.get(figure.id);
}

function button(text, act, pressed) {
  const made = document.createElement("button");
  made.type = "button";
  made.append(text);
  if (pressed !== undefined) made.setAttribute("aria-pressed", String(pressed));
  made.addEventListener("click", act);
  return made;
}

function isPositive(values) {
  return values.every((y) => y === null || y > 0);
}

function showTools(figure, data, view) {
  const tools = figure.querySelector(".tools");
  const toggle = (name) => () => {
    view[name] = !view[name];
    draw(figure).then(() => tools.querySelector(`[data-name="${name}"]`).focus());
  };
  const made = (name, text) => {
    const one = button(text, toggle(name), view[name]);
    one.dataset.name = name;
    return one;
  };
  const zoom = made("zoom", "zoom");
  zoom.className = "coarse";
  const reset = button("reset", () => {
    window.Plotly.relayout(figure.querySelector(".plot"), { "xaxis.autorange": true, "yaxis.autorange": true });
  });
  reset.title = "Show all again (or double-click the figure)";
  reset.className = "reset";
  reset.hidden = !view.zoomed;
  const shown = [zoom, reset];
  if (data.lines) {
    const logX = made("logX", "log x"), logY = made("logY", "log y");
    logX.disabled = !data.axes.every(isPositive);
    logY.disabled = !data.lines.every((line) => isPositive(line.y));
    for (const one of [logX, logY]) if (one.disabled) one.title = "Needs numbers above 0";
    shown.unshift(logX, logY);
    if (data.lines.some((line) => line.low)) shown.unshift(made("bands", "bands"));
  }
  tools.replaceChildren(...shown);
  tools.hidden = false;
}

function showLegend(figure, data, view) {
  const legend = figure.querySelector(".legend"), lines = data.lines ?? [];
  if (!lines.some((line) => line.label)) return;
  const items = lines.map((line, index) => {
    const look = lookOf(index), swatch = document.createElement("i");
    swatch.className = look.dash;
    swatch.style.borderTopColor = look.color;
    const toggle = button(line.label, () => {
      if (!view.hidden.delete(line.label)) view.hidden.add(line.label);
      draw(figure).then(() => legend.querySelectorAll("li:not(.all) button")[index].focus());
    }, !view.hidden.has(line.label));
    toggle.prepend(swatch);
    return toggle;
  });
  const listed = items.map((item) => { const li = document.createElement("li"); li.append(item); return li; });
  if (lines.length > 4) {
    const all = document.createElement("li");
    all.className = "all";
    const labels = lines.map((line) => line.label);
    all.append(
      button("all", () => { view.hidden.clear(); draw(figure); }),
      button("none", () => { labels.forEach((label) => view.hidden.add(label)); draw(figure); }),
    );
    all.style.display = "flex";
    listed.unshift(all);
  }
  legend.replaceChildren(...listed);
  legend.hidden = false;
}

// --- Drawing -----------------------------------------------------------------------------------

async function draw(figure) {
  const library = await plotly();
  if (!figure.isConnected) return;
  paint(library, figure);
}

function paint(library, figure) {
  const data = dataOf(figure), view = viewOf(figure, data);
  const traces = data.bars ? barTraces(data) : lineTraces(data, view);
  showTools(figure, data, view);
  showLegend(figure, data, view);
  figure.dataset.drawn = "";
  const plot = figure.querySelector(".plot"), fresh = !plot.on;
  library.react(plot, traces, layout(data, view), {
    displayModeBar: false, responsive: true, doubleClick: "autosize",
  });
  if (fresh) plot.on("plotly_relayout", (change) => noteZoom(plot, change));
}

function noteZoom(plot, change) {
  const figure = plot.closest(".figure"), names = Object.keys(change);
  const view = views.get(figure.id);
  if (names.some((name) => name.includes(".range"))) view.zoomed = true;
  if (names.some((name) => name.endsWith(".autorange"))) view.zoomed = false;
  figure.querySelector(".reset").hidden = !view.zoomed;
}

const watched = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    watched.unobserve(target);
    draw(target);
  }
}, { rootMargin: "300px" });

function watchFigures() {
  for (const figure of document.querySelectorAll(".figure:not([data-drawn])")) watched.observe(figure);
}

function redraw() {
  for (const figure of document.querySelectorAll(".figure[data-drawn]")) draw(figure);
}

// On paper all figures are light, and those that were not seen are there as well.
addEventListener("beforeprint", () => {
  document.documentElement.dataset.print = "";
  for (const settings of document.querySelectorAll("details.block:not([open])"))
    settings.open = settings.dataset.printed = true;
  if (!window.Plotly) return;
  for (const figure of document.querySelectorAll(".figure"))
    if (figure.offsetParent) paint(window.Plotly, figure);
});
addEventListener("afterprint", () => {
  delete document.documentElement.dataset.print;
  for (const settings of document.querySelectorAll("details[data-printed]")) {
    settings.open = false;
    delete settings.dataset.printed;
  }
  redraw();
});

dark.addEventListener("change", redraw);
watchFigures();
