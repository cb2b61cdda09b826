// Draws the plots of a machine's results of a ladder: plots(place, set). page.py writes the set.
"use strict";
const SHAPES = ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "M-4-4h8v8h-8z", "M0-5L5 0 0 5-5 0z",
  "M-5-4h10L0 5z", "M-5 4h10L0-5z", "M-1.5-5h3v3.5h3.5v3h-3.5V5h-3V1.5H-5v-3h3.5z",
  "M-5-3l2-2 3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3z", "M0-5.5l1.5 4h4L2.5 1l1 4.5L0 3l-3.5 2.5 1-4.5-3-2.5h4z",
  "M-5 0l8-5v10z", "M5 0l-8-5v10z", "M-2.5-4.5h5l2.5 4.5-2.5 4.5h-5L-5 0z", "M0-5.5l5 4-2 6h-6l-2-6z"];

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}
const html = (name, attributes = {}, ...children) =>
  build(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

function median(values) {
  const sorted = [...values].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
const digits = (value) => value >= 999.5 ? value.toFixed(0) : Number(value.toPrecision(3)) === 0 ? "0"
  : value.toPrecision(3);

// A mark of a line. Its shape has a wide edge that cannot be seen, so that it is easily hit.
function mark(line, x, y, words, size = 1) {
  return svg("path", {d: SHAPES[line.shape], transform: `translate(${x},${y}) scale(${size})`,
    fill: line.peer ? "var(--ground)" : line.colour, stroke: line.colour,
    "stroke-width": 1.5, "data-tip": words, "pointer-events": "all"});
}

// The numbers on an axis. On a logarithmic one, they are 1, 2 and 5 times powers of ten, or fewer.
function ticks({limits: [low, high], log, values}, room) {
  if (values) return values;
  const found = [];
  const decades = log ? Math.log10(high / low) : 0;
  if (decades > 1) {
    const factors = decades < room / 2 ? [1, 2, 5] : [1], step = Math.ceil(decades / room);
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += step)
      found.push(...factors.map((factor) => factor * 10 ** power));
  } else {
    const raw = (high - low) / room, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
    for (let i = Math.ceil(low / step); i * step <= high * 1.0001; i++) found.push(i * step);
  }
  return found.filter((value) => value >= low * 0.9999 && value <= high * 1.0001);
}

// One panel: {title, x, y, series}. An axis is {label, limits, log, values of its ticks}.
function panel({title, x, y, series, roofs = [], now = null, arrows = []}, width, height = 300) {
  const [left, right, top, bottom] = [48, width - 14, 26, height - 40];
  const place = ({limits, log}, from, to) => {
    const f = log ? Math.log : Number, [low, high] = limits.map(f);
    return (value) => from + (f(value) - low) / (high - low || 1) * (to - from);
  };
  const across = place(x, left, right), up = place(y, bottom, top), root = svg("svg", {
    role: "img", "aria-label": `${y.label} against ${x.label}, ${title || "all cells"}`,
    viewBox: `0 0 ${width} ${height}`});
  const short = (value) => String(Number(value.toPrecision(6)));
  for (const value of ticks(y, 6)) root.append(
    svg("path", {class: "grid", d: `M${left} ${up(value)}H${right}`}),
    svg("text", {x: left - 6, y: up(value) + 4, "text-anchor": "end"}, short(value)));
  let end = -99; // of the number before: numbers that would touch it are left out
  for (const value of ticks(x, 6)) {
    const half = 3.8 * short(value).length, at = across(value);
    root.append(svg("path", {class: "grid", d: `M${at} ${top}V${bottom}`}));
    if (at - half < end) continue;
    root.append(svg("text", {x: at, y: bottom + 16, "text-anchor": "middle"}, short(value)));
    end = at + half + 4;
  }
  root.append(svg("text", {x: 2, y: 14}, y.label),
    svg("text", {x: (left + right) / 2, y: height - 6, "text-anchor": "middle"}, x.label));
  if (now !== null) root.append(svg("path", {class: "now", d: `M${across(now)} ${top}V${bottom}`}));
  const path = (points) => "M" + points.map(([a, b]) => `${across(a)} ${up(b)}`).join("L");
  const names = [];
  for (const [name, points] of roofs) {
    const flat = points[0][1] === points[1][1], at = across(points[flat ? 1 : 0][0]);
    let level = up(points[0][1]) + (flat ? -5 : 4);
    while (names.some(([other, side]) => side === flat && Math.abs(other - level) < 14)) level += 2;
    names.push([level, flat]);
    root.append(svg("path", {d: path(points), fill: "none", stroke: "var(--ink)"}),
      svg("text", {class: "roof", x: at + (flat ? 0 : 8), y: level,
        "text-anchor": flat ? "end" : "start"}, name));
  }
  for (const [from, to] of arrows) {
    const [a, b] = [up(from[1]), up(to[1])], at = across(to[0]), sign = Math.sign(a - b);
    if (Math.abs(a - b) > 16) root.append(svg("path", {fill: "none", stroke: "var(--soft)",
      d: `M${at} ${a - sign * 6}V${b + sign * 7}m-3 ${sign * 5}l3 ${-sign * 5}l3 ${sign * 5}`}));
  }
  for (const line of series) {
    if (line.points.length > 1 && !line.loose) root.append(svg("path", {d: path(line.points),
      fill: "none", stroke: line.colour, "stroke-width": line.peer ? 1 : 2}));
    for (const [a, b, words, size] of line.points) root.append(mark(line, across(a), up(b),
      words || `${line.name}\n${x.label} ${short(a)}: ${digits(b)}`, size));
  }
  return html("figure", {class: "panel"}, title ? html("figcaption", {}, title) : null, root);
}

// Bars: a line is [name, [[start, end, colour, words, text]], number], with parts of the width.
const bars = (lines) => html("div", {class: "bars wide"}, ...lines.flatMap(([name, parts, number]) => [
  html("span", {}, name), html("span", {}, number), html("div", {}, ...parts.map(([start, end, colour, words, text]) =>
    html("i", {style: `left:${100 * start}%;width:${100 * (end - start)}%;background:${colour}`,
      "data-tip": words, class: end > start ? "" : "end"}, text || "")))]));

// The plots of a machine's results of a ladder.
function plots(place, set) {
  const order = (a, b) => a < b ? -1 : a > b ? 1 : 0, isNumber = (value) => typeof value === "number";
  const values = set.axes.map((_, i) => [...new Set(set.cells.map((cell) => cell[i]))].sort(order));
  const chosen = [...set.start], hidden = new Set(), panels = html("div", {class: "panels"});
  const controls = html("form", {class: "controls"}), legend = html("div", {class: "legend"});
  let log = true;
  const shown = () => set.lines.filter((line) => !hidden.has(line.stage));
  const at = (cell) => set.cells.findIndex((each) => each.every((value, i) => value === cell[i]));
  const name = (cell) => set.axes.map((axis, i) => `${axis.option} ${cell[i]}`).join(", ");
  const words = (line, cell, run) => [line.name, name(cell), `${set.time}: ${digits(median(run.times))} `
    + set.unit + (run.noisy ? " ~" : ""), run.times.length > 1 ? `${run.times.length} runs: `
    + run.times.map(digits).join(", ") : "one run", run.gflops ? `${digits(run.gflops)} GFLOP/s` : ""]
    .filter(Boolean).join("\n");
  const heading = (title) => html("h4", {}, title);
  const widen = (limits) => log ? [limits[0] / 1.2, limits[1] * 1.2] : [0, limits[1] * 1.08];
  const range = (found) => [Math.min(...found), Math.max(...found)];

  function rungs(cell) {
    const found = shown().filter((line) => line.rung && line.runs[cell]);
    const time = (line) => median(line.runs[cell].times);
    const all = found.flatMap((line) => [time(line), line.ceiling && line.runs[cell].gflops
      ? time(line) * Math.min(1, line.runs[cell].gflops / line.ceiling) : time(line)]).filter(Boolean);
    const f = log ? Math.log : Number, [low, high] = widen(range(all)).map(f);
    const part = (value) => (f(value) - low) / (high - low);
    return bars(found.filter(time).map((line) => {
      const run = line.runs[cell], other = found.find((each) => each.name === line.above);
      const [start, end] = range([log ? part(time(other || line)) : 0, part(time(line))]);
      const limit = line.ceiling && run.gflops && time(line) * run.gflops / line.ceiling;
      return [line.name + line.mark, [[start, Math.max(end, start + 0.004), line.colour,
        words(line, chosen, run)], ...(limit && limit <= time(line) ? [[part(limit), part(limit), "",
        `the time at the ceiling: ${digits(limit)} ${set.unit}`]] : [])],
      `${run.noisy ? "~" : ""}${digits(time(line))} ${set.unit}`
        + (other ? `, ${digits(time(other) / time(line))}×` : "")];
    }));
  }

  function times(i, width) {
    const numeric = values[i].every(isNumber), x = (value) => numeric ? value : values[i].indexOf(value);
    const series = shown().filter((line) => line.all).map((line) => ({...line,
      points: values[i].flatMap((value) => {
        const cell = chosen.map((other, k) => k === i ? value : other), run = line.runs[at(cell)];
        return run && median(run.times) > 0 ? [[x(value), median(run.times), words(line, cell, run),
          run.noisy ? 1.4 : 1]] : [];
      })})).filter((line) => line.points.length);
    const found = series.flatMap((line) => line.points.map((point) => point[1]));
    if (!numeric || !found.length) return null;
    const others = set.axes.flatMap((axis, k) => k === i ? [] : [`${axis.option} ${chosen[k]}`]);
    const [low, high] = range(values[i]);
    return panel({title: others.join(", "), series, now: x(chosen[i]),
      x: {label: set.axes[i].name, limits: log ? [low / 1.15, high * 1.15] : [0, high * 1.06], log,
        values: values[i]},
      y: {label: `${set.time} (${set.unit})`, limits: widen(range(found)), log}}, width);
  }

  function phases(cell) {
    return bars(shown().filter((line) => line.all && line.runs[cell]
      && line.runs[cell].phases.some((value) => value)).map((line) => {
      const run = line.runs[cell], time = median(run.times) / (set.unit === "ms" ? 1000 : 1);
      let start = 0;
      return [line.name, set.phases.map((phase, i) => {
        const share = (run.phases[i] || 0) / time, from = start, text = `${(100 * share).toFixed(0)} %`;
        start += share;
        return [from, Math.min(start, 1), set.phaseColours[i], `${line.name}\n${phase}: ${text}`,
          share > 0.12 ? text : ""];
      }), `${digits(median(run.times))} ${set.unit}`];
    }));
  }

  function roofline(cell, width) {
    const lines = shown().filter((line) => line.all && line.cpu);
    const series = lines.map((line) => ({...line, loose: true, points: set.cells.flatMap((each, i) =>
      line.runs[i] && line.runs[i].gflops && set.intensities[i] ? [[set.intensities[i],
        line.runs[i].gflops, words(line, each, line.runs[i]), i === cell ? 1.2 : 0.5]] : [])}));
    const marks = series.flatMap((line) => line.points).concat(set.roofs.flatMap((roof) => roof[1]));
    const way = lines.filter((line) => !line.peer && line.runs[cell] && line.runs[cell].gflops)
      .map((line) => [set.intensities[cell], line.runs[cell].gflops]);
    const limits = (i) => range(marks.map((point) => point[i])).map((value, k) =>
      k ? value * 1.5 : value / 1.1);
    return panel({title: "", series, roofs: set.roofs, arrows: way.slice(1).map((to, i) => [way[i], to]),
      x: {label: "operations for each byte read or written once", limits: limits(0), log: true},
      y: {label: "GFLOP/s", limits: limits(1), log: true}}, width, 420);
  }

  function draw() {
    const cell = at(chosen), width = Math.max(280, place.clientWidth);
    const columns = Math.max(1, Math.floor((width + 24) / 376)), part = columns > 1
      ? (width - 24 * (columns - 1)) / columns : width;
    const found = [heading(`The ladder: ${name(chosen) || "each run"}`), html("p", {class: "small"},
      log ? "A bar begins at the time of the line above." : "", " A dark line is the time at the ceiling."),
    rungs(cell)];
    const panels_ = set.axes.map((_, i) => values[i].length > 1 ? times(i, part) : null).filter(Boolean);
    if (panels_.length) found.push(heading(`${set.time[0].toUpperCase()}${set.time.slice(1)}`), ...panels_);
    if (set.lines.some((line) => line.runs[cell] && line.runs[cell].phases.some((value) => value)))
      found.push(heading("Phases"), html("p", {class: "small"}, ...set.phases.flatMap((phase, i) => [
        html("i", {class: "key", style: `--key:${set.phaseColours[i]}`}), `${phase} `])), phases(cell));
    if (set.roofs.length && set.intensities[cell]) {
      const figure = roofline(cell, width);
      figure.classList.add("wide");
      found.push(heading("Roofline"), figure, html("p", {class: "small"}, set.note));
    }
    for (const figure of set.figures) {
      found.push(heading(figure.title), ...figure.panels.map((each) => panel({...each, series:
        each.series.filter((line) => !hidden.has(line.name.split(",")[0]))}, part)));
    }
    panels.replaceChildren(...found);
  }

  set.axes.forEach((axis, i) => {
    if (values[i].length < 2) return;
    const output = html("output", {}, String(chosen[i])), slider = html("input", {type: "range",
      min: 0, max: values[i].length - 1, value: values[i].indexOf(chosen[i])});
    slider.addEventListener("input", () => {
      chosen[i] = values[i][slider.value];
      output.value = chosen[i];
      draw();
    });
    controls.append(html("label", {}, axis.name, slider, output));
  });
  const box = html("input", {type: "checkbox", checked: ""});
  box.addEventListener("input", () => { log = box.checked; draw(); });
  controls.append(html("label", {}, box, "logarithmic"));
  for (const line of new Map(set.lines.filter((each) => each.all).map((each) => [each.stage, each])).values()) {
    const button = html("button", {type: "button", "aria-pressed": true}, svg("svg",
      {viewBox: "-7 -7 14 14", "aria-hidden": true}, mark(line, 0, 0, "")), ` ${line.stage}`);
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", hidden.has(line.stage));
      if (!hidden.delete(line.stage)) hidden.add(line.stage);
      draw();
    });
    legend.append(button);
  }
  place.append(controls, legend, panels);
  addEventListener("resize", () => place.clientWidth && draw());
  draw();
}
