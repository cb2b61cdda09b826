// Draws the plots of a machine's results of a ladder: plots(place, set). page.py writes the set.
const SHAPES = ["M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "M-4-4h8v8h-8z", "M0-5L5 0 0 5-5 0z", "M-5-4h10L0 5z",
  "M-5 4h10L0-5z", "M-1.5-5h3v3.5h3.5v3h-3.5V5h-3V1.5H-5v-3h3.5z",
  "M-5-3l2-2 3 3 3-3 2 2-3 3 3 3-2 2-3-3-3 3-2-2 3-3z",
  "M0-5.5l1.5 4h4L2.5 1l1 4.5L0 3l-3.5 2.5 1-4.5-3-2.5h4z", "M-5 0l8-5v10z", "M5 0l-8-5v10z",
  "M-2.5-4.5h5l2.5 4.5-2.5 4.5h-5L-5 0z", "M0-5.5l5 4-2 6h-6l-2-6z"];
const digits = (value) => value >= 999.5 ? value.toFixed(0) : value ? value.toPrecision(3) : "0";
const short = (value) => String(Number(value.toPrecision(6)));
const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);
const range = (found) => [Math.min(...found), Math.max(...found)];
const scale = ({limits, log}, from, to, f = log ? Math.log : Number, [low, high] = limits.map(f)) =>
  (value) => from + (f(value) - low) / (high - low || 1) * (to - from);
const mark = (line, x, y, words, size = 1) => svg("path", {d: SHAPES[line.shape],
  transform: `translate(${x},${y}) scale(${size})`, fill: line.peer ? "var(--ground)" : line.colour,
  stroke: line.colour, "stroke-width": 1.5, "data-tip": words});

// The numbers on an axis. On a logarithmic one, they are 1, 2 and 5 times powers of ten, or fewer.
function ticks({limits: [low, high], log}, room) {
  const decades = log ? Math.log10(high / low) : 0, found = [];
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

// An axis is {label, limits, log, values of its ticks}; a line's points are [x, y, words, size].
function panel({title = "", x, y, series, roofs = [], now = null}, width, height = 300) {
  const [left, right, top, bottom] = [48, width - 14, 26, height - 40];
  const across = scale(x, left, right), up = scale(y, bottom, top);
  const root = svg("svg", {role: "img", viewBox: `0 0 ${width} ${height}`,
    "aria-label": `${y.label} against ${x.label}, ${title || "all cells"}`});
  const text = (x, y, anchor, words, look = "") =>
    root.append(svg("text", {x, y, "text-anchor": anchor, class: look}, words));
  const draw = (d, stroke, look = "", thick = 1) =>
    root.append(svg("path", {d, fill: "none", stroke, class: look, "stroke-width": thick}));
  const path = (points) => "M" + points.map(([a, b]) => `${across(a)} ${up(b)}`).join("L");
  for (const value of ticks(y, 6)) {
    draw(`M${left} ${up(value)}H${right}`, "var(--line)");
    text(left - 6, up(value) + 4, "end", short(value));
  }
  let end = -99; // of the number before: numbers that would touch it are left out
  for (const value of x.values || ticks(x, 6)) {
    const half = 3.8 * short(value).length, at = across(value);
    draw(`M${at} ${top}V${bottom}`, "var(--line)");
    if (at - half > end) text(at, bottom + 16, "middle", short(value));
    if (at - half > end) end = at + half + 4;
  }
  text(2, 14, "start", capital(y.label));
  text((left + right) / 2, height - 6, "middle", capital(x.label));
  if (now !== null) draw(`M${across(now)} ${top}V${bottom}`, "var(--soft)", "now");
  const names = [];
  for (const [name, points] of roofs) { // a flat one has its name at its end, another before its start
    const flat = points[0][1] === points[1][1];
    let level = up(points[0][1]) + (flat ? -5 : 4);
    while (names.some((other) => flat === other[1] && Math.abs(other[0] - level) < 14)) level += 2;
    names.push([level, flat]);
    draw(path(points) + (flat ? `H${right}` : ""), "var(--ink)");
    text(flat ? right : across(points[0][0]) - 6, level, "end", name.split(", ")[flat ? 1 : 0], "roof");
  }
  for (const line of series) {
    if (line.points.length > 1 && !roofs.length) draw(path(line.points), line.colour, "", line.peer ? 1 : 2);
    for (const [a, b, words, size] of line.points) root.append(mark(line, across(a), up(b),
      words || `${line.name}\n${x.label} ${short(a)}: ${digits(b)}`, size));
  }
  root.append(...root.querySelectorAll(".roof")); // above the marks
  return html("figure", {class: roofs.length ? "panel wide" : "panel"}, html("figcaption", {}, title), root);
}

// A line is [name, number, [[start, end, colour, words, text]]], with parts of the width.
const bars = (lines) => html("div", {class: "bars wide"}, ...lines.flatMap(([name, number, parts]) => [
  html("span", {}, name), html("span", {}, number),
  html("div", {}, ...parts.map(([start, end, colour, words, text = ""]) => html("i", {"data-tip": words,
    style: `left:${100 * start}%;width:${100 * (end - start)}%;background:${colour}`,
    class: end > start ? "" : "end"}, text)))]));

function plots(place, set) {
  const order = (a, b) => a < b ? -1 : a > b ? 1 : 0, chosen = [...set.start], hidden = new Set();
  const values = set.axes.map((_, i) => [...new Set(set.cells.map((cell) => cell[i]))].sort(order));
  const [controls, legend, panels] = ["controls", "legend", "panels"].map((look) =>
    place.appendChild(html("div", {class: look})));
  let log = true;
  const shown = () => set.lines.filter((line) => !hidden.has(line.stage));
  const at = (cell) => set.cells.findIndex((each) => each.every((value, i) => value === cell[i]));
  const name = (cell, skip) => set.axes.flatMap(({option}, i) => // of a cell, or of a line along an axis
    i === skip ? [] : `${option} ${cell[i]}`).join(", ");
  const heading = (title) => html("h4", {}, title);
  const note = (...words) => html("p", {class: "small"}, ...words);
  const widen = (limits) => log ? [limits[0] / 1.2, limits[1] * 1.2] : [0, limits[1] * 1.08];
  const words = (line, cell, {text, count, above, gain, gflops}) => [line.name, name(cell),
    `${set.time}: ${text}`, count > 1 ? `${count} runs` : "one run", gain && `over ${above}: ${gain}`,
    gflops ? `${digits(gflops)} GFLOP/s` : ""].filter(Boolean).join("\n");
  function ladder(cell) {
    const found = shown().filter((line) => line.rung && line.runs[cell] && line.runs[cell].time);
    const time = (line) => line.runs[cell].time;
    const limit = (line) => line.ceiling ? time(line) * line.runs[cell].gflops / line.ceiling : 0;
    const all = found.flatMap((line) => [time(line), limit(line)]).filter(Boolean);
    const part = scale({limits: widen(range(all)), log}, 0, 1);
    return bars(found.map((line) => {
      const run = line.runs[cell], other = found.find((each) => each.name === run.above);
      const [start, end] = range([log ? part(time(other || line)) : 0, part(time(line))]);
      const edge = part(limit(line));
      const bar = [start, Math.max(end, start + 0.004), line.colour, words(line, chosen, run)];
      const ceiling = [edge, edge, "", `the time at the ceiling: ${digits(limit(line))} ${set.unit}`];
      return [line.name + line.mark, run.text.split(" (")[0] + (run.gain && `, ${run.gain}`),
        limit(line) && limit(line) <= run.time ? [bar, ceiling] : [bar]];
    }));
  }
  function times(i, width) { // along an axis
    const series = shown().filter((line) => line.all).map((line) => ({...line,
      points: values[i].flatMap((value) => {
        const cell = chosen.map((other, k) => k === i ? value : other), run = line.runs[at(cell)];
        return run && run.time ? [[value, run.time, words(line, cell, run), run.noisy ? 1.4 : 1]] : [];
      })}));
    const found = series.flatMap((line) => line.points.map((point) => point[1]));
    if (values[i].length < 2 || typeof values[i][0] !== "number" || !found.length) return [];
    const [low, high] = range(values[i]), limits = log ? [low / 1.15, high * 1.15] : [0, high * 1.06];
    return [panel({title: name(chosen, i), series, now: chosen[i],
      x: {label: set.axes[i].name, limits, log, values: values[i]},
      y: {label: `${set.time} (${set.unit})`, limits: widen(range(found)), log}}, width)];
  }
  const phases = (cell) => bars(shown().filter((line) => line.all && line.runs[cell]
    && line.runs[cell].phases.some(Boolean)).map((line) => {
    let end = 0, {time, phases} = line.runs[cell];
    return [line.name, `${digits(time)} ${set.unit}`, set.phases.map((phase, i) => {
      const share = phases[i] / time, start = end, text = `${(100 * share).toFixed(0)} %`;
      end = Math.min(1, end + share);
      return [start, end, set.phaseColours[i], `${line.name}\n${phase}: ${text}`, share > 0.12 ? text : ""];
    })];
  }));
  function roofline(cell, width) {
    const lines = shown().filter((line) => line.all && line.cpu);
    const point = (line, i, size) => line.runs[i] && line.runs[i].gflops && set.intensities[i] ? [[
      set.intensities[i], line.runs[i].gflops, words(line, set.cells[i], line.runs[i]), size]] : [];
    const series = lines.map((line) => ({...line, points:
      set.cells.flatMap((_, i) => point(line, i, i === cell ? 1.2 : 0.5))}));
    const marks = [...series.flatMap((line) => line.points), ...set.roofs.flatMap((roof) => roof[1])];
    const [[low, high], [bottom, top]] = [0, 1].map((i) => range(marks.map((each) => each[i])));
    const room = (high / low) ** (20 / (width - 140)); // twenty pixels; the names of roofs need some
    return panel({series, roofs: set.roofs,
      x: {label: "operations for each byte read or written once",
        limits: [low / room ** 3, high * room], log: true},
      y: {label: "GFLOP/s", limits: [0.8 * bottom, 1.5 * top], log: true}}, width, 360);
  }
  function draw(width = Math.max(280, place.clientWidth)) {
    const cell = at(chosen);
    const columns = Math.max(1, Math.floor((width + 24) / 376)), part = (width + 24) / columns - 24;
    const found = [heading(`The ladder${chosen.length ? ": " : ""}${name(chosen)}`), note("An upright "
      + "line is the time at the ceiling.", log ? " A bar begins at the line above." : ""), ladder(cell)];
    const along = values.flatMap((_, i) => times(i, part)), keys = set.phases.flatMap((phase, i) => [
      html("i", {class: "key", style: `--key:${set.phaseColours[i]}`}), `${phase} `]);
    if (along.length) found.push(heading(capital(set.time)),
      note(`A large mark: a run is ${set.limit}.`), ...along);
    if (set.lines.some((line) => line.runs[cell] && line.runs[cell].phases.some(Boolean)))
      found.push(heading("Phases"), note(...keys), phases(cell));
    if (set.roofs.length && set.intensities[cell])
      found.push(heading("Roofline"), roofline(cell, width), note(set.note));
    for (const figure of set.figures)
      found.push(heading(figure.title), ...figure.panels.map((each) => panel({...each, series:
        each.series.filter((line) => !hidden.has(line.name.split(",")[0]))}, part)));
    panels.replaceChildren(...found);
  }
  function control(label, attributes, act, ...more) {
    const input = html("input", attributes);
    input.addEventListener("input", () => { act(input); draw(); });
    controls.append(html("label", {}, capital(label), input, ...more));
  }
  values.forEach((found, i) => {
    const output = html("output", {}, String(chosen[i]));
    const end = found.length - 1, slider = {type: "range", max: end, value: found.indexOf(chosen[i])};
    const act = ({value}) => { output.value = chosen[i] = found[value]; };
    if (end) control(set.axes[i].name, slider, act, output);
  });
  control("logarithmic", {type: "checkbox", checked: ""}, (input) => { log = input.checked; });
  for (const [stage, line] of new Map(set.lines.filter(({all}) => all).map((line) => [line.stage, line]))) {
    const key = svg("svg", {viewBox: "-7 -7 14 14", "aria-hidden": true}, mark(line, 0, 0, ""));
    const button = legend.appendChild(html("button", {"aria-pressed": true}, key, ` ${stage}`));
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", hidden.has(stage));
      if (!hidden.delete(stage)) hidden.add(stage);
      draw();
    });
  }
  addEventListener("resize", () => place.clientWidth && draw());
  draw();
}
