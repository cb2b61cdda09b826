// Draws the plots of a machine's results of a ladder: plots(place, set, state, changed). page.py writes the
// set. The state is what the reader has chosen, for all machines: {show, cell, picked, other}.
const KINDS = {stage: "stages", step: "steps", peer: "peers"}, MOST_PICKED = 6;
const SHAPES = {stage: "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z", step: "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
  peer: "M0-6L6 0 0 6-6 0z"};
const digits = (value) => value >= 999.5 ? value.toFixed(0) : value ? value.toPrecision(3) : "0";
const short = (value) => String(Number(value.toPrecision(6)));
const capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);
const range = (found) => [Math.min(...found), Math.max(...found)];
const pen = document.createElement("canvas").getContext("2d"); // to measure texts, in pixels
pen.font = "600 12px system-ui, sans-serif";
const room = (texts) => Math.max(0, ...texts.map((text) => pen.measureText(text).width));
const scale = ({limits, log}, from, to, f = log ? Math.log : Number, [low, high] = limits.map(f)) =>
  (value) => from + (f(value) - low) / (high - low || 1) * (to - from);
const symbol = (kind, x, y, colour, size = 1) => svg("path", {d: SHAPES[kind], stroke: colour, "stroke-width": 1.5,
  transform: `translate(${x},${y}) scale(${size})`, fill: kind === "stage" ? colour : "var(--ground)"});
const told = (words) => ({role: "img", tabindex: -1, "aria-label": words, "data-tip": words});

// The cell of a list that is nearest to this one, and first of all on this axis.
function nearest(cells, wanted, axis) {
  const far = (a, b) => a === b ? 0 : a > 0 && b > 0 ? Math.abs(Math.log(a / b)) : 1;
  const sum = (cell) => cell.reduce((all, value, i) => all + far(value, wanted[i]) * (i === axis ? 1e6 : 1), 0);
  return cells.reduce((best, cell) => sum(cell) < sum(best) ? cell : best);
}

// Labels, each as [height, ...], moved apart. None is below the floor.
function spread(labels, floor, gap = 14) {
  labels.sort((a, b) => a[0] - b[0]);
  labels.forEach((label, i) => { if (i) label[0] = Math.max(label[0], labels[i - 1][0] + gap); });
  [...labels].reverse().forEach((label, i) => { label[0] = Math.min(label[0], floor - i * gap); });
  return labels;
}

// The numbers on an axis. On a logarithmic one, they are 1, 2 and 5 times powers of ten, or fewer.
function ticks({limits: [low, high], log}, count) {
  const decades = log ? Math.log10(high / low) : 0, found = [];
  if (decades > 1) {
    const factors = decades < count / 2 ? [1, 2, 5] : [1], step = Math.ceil(decades / count);
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += step)
      found.push(...factors.map((factor) => factor * 10 ** power));
  } else {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
    for (let i = Math.ceil(low / step); i * step <= high * 1.0001; i++) found.push(i * step);
  }
  return found.filter((value) => value >= low * 0.9999 && value <= high * 1.0001);
}

// A picture to draw in. Its marks can be reached with the arrows, from the first.
function sheet(width, height, label) {
  const root = svg("svg", {role: "group", viewBox: `0 0 ${width} ${height}`, "aria-label": label});
  const text = (x, y, anchor, words, look = "") =>
    root.append(svg("text", {x, y, "text-anchor": anchor, class: look}, words));
  const draw = (d, stroke, thick = 1, look = "") =>
    root.append(svg("path", {d, fill: "none", stroke, class: look, "stroke-width": thick}));
  const across = (axis, at, [top, bottom], ...heights) => { // lines and numbers of an axis
    let end = -99; // of the number before: numbers that would touch it are left out
    for (const value of axis.values || ticks(axis, 6)) {
      const half = 3.8 * short(value).length;
      draw(`M${at(value)} ${top}V${bottom}`, "var(--line)");
      if (at(value) - half <= end) continue;
      for (const y of heights) text(at(value), y, "middle", short(value));
      end = at(value) + half + 4;
    }
  };
  const done = (title, look) => {
    root.querySelector("[tabindex]")?.setAttribute("tabindex", 0);
    return html("figure", {class: look}, html("figcaption", {}, title), root);
  };
  return {root, text, draw, across, done};
}

// An axis is {label, limits, log, values of its ticks}; a line is {name, kind, colour, points}, faint without
// a colour, and dashed if it is another machine's. A point is [x, y, words, size].
function panel({title = "", x, y, series, roofs = [], now = null}, width, height = 300) {
  const named = roofs.length ? [] : series.filter(({colour}) => colour);
  const [left, right, top, bottom] = [48, width - 14 - room(named.map(({name}) => name)), 26, height - 40];
  const across = scale(x, left, right), up = scale(y, bottom, top);
  const {root, text, draw, ...more} = sheet(width, height, `${y.label} against ${x.label}, ${title || "all cells"}`);
  const path = (points) => "M" + points.map(([a, b]) => `${across(a)} ${up(b)}`).join("L");
  for (const value of ticks(y, 6)) {
    draw(`M${left} ${up(value)}H${right}`, "var(--line)");
    text(left - 6, up(value) + 4, "end", short(value));
  }
  more.across(x, across, [top, bottom], bottom + 16);
  text(2, 14, "start", capital(y.label));
  text((left + right) / 2, height - 6, "middle", capital(x.label));
  if (now !== null) draw(`M${across(now)} ${top}V${bottom}`, "var(--soft)", 1, "dashed");
  const names = [];
  for (const [name, points] of roofs) { // a flat one has its name at its end, another before its start
    const flat = points[0][1] === points[1][1];
    let level = up(points[0][1]) + (flat ? -5 : 4);
    while (names.some((other) => flat === other[1] && Math.abs(other[0] - level) < 14)) level += 2;
    names.push([level, flat]);
    draw(path(points) + (flat ? `H${right}` : ""), "var(--ink)");
    text(flat ? right : across(points[0][0]) - 6, level, "end", name.split(", ")[flat ? 1 : 0], "roof");
  }
  for (const {name, kind, colour, points, theirs} of [...series].sort((a, b) => Boolean(a.colour) - Boolean(b.colour))) {
    if (points.length > 1 && !roofs.length)
      draw(path(points), colour || "var(--line)", colour ? 2 : 1, theirs ? "dashed" : "");
    for (const [a, b, words = `${name}\n${x.label} ${short(a)}: ${digits(b)}`, size] of points)
      if (colour || roofs.length) root.append(build(symbol(kind, across(a), up(b), colour || "var(--soft)", size),
        told(words), []));
  }
  const ends = named.map(({name, points, colour}) => [up(points[points.length - 1][1]) + 4, name, colour]);
  for (const [level, name, colour] of spread(ends, bottom))
    root.append(svg("text", {x: right + 10, y: level, class: "name", style: `fill:${colour}`}, name));
  root.append(...root.querySelectorAll(".roof")); // above the marks
  return more.done(title, roofs.length ? "panel wide" : "panel");
}

// One line for each stage and peer, the fastest first: {name, kind, colour, words, label, time, low, high, other}.
function chart(lines, axis, peaks, width, label, pick) {
  const isNarrow = width < 560, high = isNarrow ? 36 : 22, drop = isNarrow ? 10 : 0; // names above the marks
  const left = isNarrow ? 12 : 16 + room(lines.map(({name}) => name));
  const right = isNarrow ? width - 12 : width - 20 - room(lines.map((line) => line.label));
  const top = 24 + 14 * peaks.length, bottom = top + high * lines.length, at = scale(axis, left, right);
  const {root, text, draw, across, done} = sheet(width, bottom + 40, label);
  across(axis, at, [top, bottom], top - 6, bottom + 16);
  text(Math.max((left + right) / 2, room([axis.label]) / 2), bottom + 34, "middle", capital(axis.label));
  peaks.forEach(([name, value], i) => {
    draw(`M${at(value)} ${16 + 14 * i}V${bottom}`, "var(--ink)", 1, "dashed");
    text(Math.max(room([name]) / 2, Math.min(at(value), width - room([name]) / 2)), 12 + 14 * i, "middle", name);
  });
  lines.forEach((line, i) => {
    const y = top + high * (i + 0.5) + drop, paint = line.colour || "var(--soft)", picked = Boolean(line.colour);
    const row = svg("g", {...told(line.words), class: "row", role: "button", "aria-pressed": picked},
      svg("rect", {x: 0, y: top + high * i, width, height: high}),
      svg("text", {x: isNarrow ? 0 : left - 12, y: y + 4 - 1.6 * drop, "text-anchor": isNarrow ? "start" : "end",
        class: picked ? "name" : ""}, line.name),
      svg("path", {d: `M${at(line.low)} ${y}H${at(line.high)}m0-4v8M${at(line.low)} ${y - 4}v8`, stroke: paint}),
      ...line.other ? [svg("path", {d: `M${at(line.other)} ${y - 9}v18`, stroke: paint, "stroke-width": 3})] : [],
      symbol(line.kind, at(line.time), y, paint),
      svg("text", {x: isNarrow ? width : at(Math.max(line.high, line.other || 0)) + 10, y: y + 4 - 1.6 * drop,
        "text-anchor": isNarrow ? "end" : "start"}, line.label));
    row.addEventListener("click", () => pick(line.stage));
    root.append(row);
  });
  return done("", "panel wide");
}

function plots(place, set, state, changed) {
  const order = (a, b) => a < b ? -1 : a > b ? 1 : 0, heading = (title) => headingIn(place.parentNode, title);
  const [controls, panels] = ["controls", "panels"].map((look) => place.appendChild(html("div", {class: look})));
  const below = place.parentNode.querySelector(".more"); // the ladder's table
  const note = (...words) => html("p", {class: "small"}, ...words);
  const widen = ([low, high]) => [low / 1.2, high * 1.2];
  const name = (cell, skip) => set.axes.flatMap(({option}, i) => // of a cell, or of a line along an axis
    i === skip ? [] : `${option} ${cell[i]}`).join(", ");
  const colour = (stage) => state.picked.includes(stage) ? `var(--c${state.picked.indexOf(stage)})` : "";
  function pick(stage) {
    const at = state.picked.indexOf(stage), free = state.picked.indexOf(null);
    if (at >= 0) state.picked[at] = null;
    else state.picked[free >= 0 ? free : Math.min(state.picked.length, MOST_PICKED - 1)] = stage;
    changed();
  }
  const words = (line, cell, {text, count, above, gain, gflops}, other = "") => [line.name, name(cell),
    `${set.time}: ${text}`, count > 1 ? `${count} runs` : "one run", gain && `over ${above}: ${gain}`,
    gflops ? `${digits(gflops)} GFLOP/s` : "", other].filter(Boolean).join("\n");

  function draw(width = Math.max(280, place.clientWidth)) {
    // All stages and steps may have runs of their own, in few cells.
    const runs = state.show.includes("step") && set.steps || set, chosen = nearest(runs.cells, state.cell || set.start);
    const cell = runs.cells.indexOf(chosen), values = set.axes.map((_, i) =>
      [...new Set(runs.cells.map((each) => each[i]))].sort(order));
    const shown = runs.lines.filter(({kind}) => state.show.includes(kind));
    const here = shown.filter((line) => line.runs[cell]?.time).sort((a, b) => a.runs[cell].time - b.runs[cell].time);
    state.picked ||= ["stage", "peer"].flatMap((kind) => here.find((line) => line.kind === kind)?.stage || [])
      .concat(runs.lines[0].stage).filter((stage, i, found) => found.indexOf(stage) === i);
    const twin = state.other && pairOf(runs, state.other), found = [], more = [];
    const theirs = (line, at) => { // the time on the other machine, in this one's unit
      const run = twin?.lines.find(({stage}) => stage === line.stage)?.runs[
        twin.cells.findIndex((each) => String(each) === String(at))];
      return run && run.time / twin.scale * runs.scale;
    };
    const columns = Math.max(1, Math.floor((width + 24) / 376)), part = (width + 24) / columns - 24;

    const lines = here.map((line) => {
      const run = line.runs[cell], other = theirs(line, chosen);
      return {...run, name: line.short + line.mark, stage: line.stage, kind: line.kind, colour: colour(line.stage),
        label: run.text.split(" (")[0], other, words: words(line, chosen, run, other &&
          `on ${state.otherName}: ${digits(other)} ${runs.unit}`)};
    });
    const peaks = [...new Map(here.filter((line) => line.runs[cell].peak).map((line) =>
      [`peak, ${line.threads === 1 ? "1 thread" : `${line.threads} threads`}`, line.runs[cell].peak]))];
    const missing = state.show.filter((kind) => !here.some((line) => line.kind === kind)).map((kind) => KINDS[kind]);
    found.push(heading(capital(set.time) + (chosen.length ? `: ${name(chosen)}` : "")), note(
      `${runs.heading.split(";")[0]}. A mark is the median, its whisker the range of the runs. Choose lines to see how they grow.` + (twin ? ` A bar is ${state.otherName}.` : ""), missing.length ? ` No ${missing.join(" and no ")} here.` : ""));
    if (lines.length) found.push(chart(lines, {label: `${set.time} (${runs.unit})`, log: true, limits: widen(range(
      [...lines.flatMap(({low, high, other}) => [low, high, other || low]), ...peaks.map((each) => each[1])]))},
    peaks, width, `${set.time} of each`, pick), note(`${runs.heading}.`,
      ...[...new Set(here.filter(({mark}) => mark).map(({mark, skips}) => ` ${mark} leaves out ${skips}.`))]));

    const grown = values.flatMap((all, i) => {
      const points = (line, time) => all.flatMap((value) => {
        const at = chosen.map((old, k) => k === i ? value : old), run = line.runs[runs.cells.findIndex((each) =>
          String(each) === String(at))], y = run?.time && time(run, at);
        return y ? [[value, y, words(line, at, run).replace("\n", ", ")]] : [];
      });
      const series = shown.flatMap((line) => [
        {name: line.short, kind: line.kind, colour: colour(line.stage), points: points(line, (run) => run.time)},
        ...twin && colour(line.stage) ? [{name: `${line.short}, theirs`, kind: line.kind, theirs: true, colour:
          colour(line.stage), points: points(line, (_, at) => theirs(line, at)).map(([x, y]) => [x, y])}] : []])
        .filter((line) => line.points.length);
      const times = series.flatMap((line) => line.points.map((point) => point[1]));
      if (all.length < 2 || typeof all[0] !== "number" || !times.length) return [];
      return [panel({title: name(chosen, i), series, now: chosen[i], x: {label: set.axes[i].name, log: true,
        limits: [all[0] / 1.15, all[all.length - 1] * 1.15], values: all},
      y: {label: `${set.time} (${runs.unit})`, limits: widen(range(times)), log: true}}, part)];
    });
    if (grown.length) found.push(heading(`How it grows with ${set.axes.map((axis) => axis.name.toLowerCase()).join(" and ")}`),
      ...twin ? [note(`Dashed: ${state.otherName}.`)] : [], ...grown);
    if (here.some((line) => line.runs[cell].phases.some(Boolean))) more.push(heading("Phases"), bars(here, cell));
    if (set.roofs.length && runs.intensities[cell]) more.push(heading("Roofline"), roofline(runs, cell, width), note(set.note));
    for (const figure of set.figures) more.push(heading(figure.title), ...figure.panels.map((each) =>
      panel({...each, series: each.series.map((line) => ({...line, colour: colour(line.name.split(",")[0])}))}, part)));
    const focused = place.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    panels.replaceChildren(...found);
    below.replaceChildren(...more);
    if (focused) [...panels.querySelectorAll("[tabindex]")].find((each) =>
      each.getAttribute("aria-label") === focused)?.focus();
    adjust(values, chosen, runs);
  }
  // Phases that are timed apart may take longer than the whole.
  const bars = (lines, cell) => html("div", {class: "bars wide"}, ...lines.filter((line) =>
    line.runs[cell].phases.some(Boolean)).flatMap((line) => {
    const {time, phases} = line.runs[cell], shares = phases.map((each) => 100 * each / time);
    const sum = shares.reduce((a, b) => a + b), rest = sum > 100.5 ? `: ${sum.toFixed(0)} % together, timed apart` : "";
    return [html("span", {}, line.short), html("span", {}, set.phases.map((phase, i) =>
      `${phase} ${shares[i].toFixed(0)} %`).join(", ") + rest), html("div", {}, ...shares.map((share, i) =>
      html("i", {style: `width:${100 * share / Math.max(sum, 100)}%;background:${set.phaseColours[i]}`})))];
  }));
  function roofline(runs, cell, width) {
    const point = (line, i, size) => line.runs[i]?.gflops && runs.intensities[i] ? [[
      runs.intensities[i], line.runs[i].gflops, words(line, runs.cells[i], line.runs[i]), size]] : [];
    const series = runs.lines.filter(({kind, cpu}) => cpu && state.show.includes(kind)).map((line) => ({...line,
      colour: colour(line.stage), points: runs.cells.flatMap((_, i) => point(line, i, i === cell ? 1 : 0.5))}));
    const marks = [...series.flatMap((line) => line.points), ...set.roofs.flatMap((roof) => roof[1])];
    const [[low, high], [bottom, top]] = [0, 1].map((i) => range(marks.map((each) => each[i])));
    const step = (high / low) ** (20 / (width - 140)); // twenty pixels; the names of roofs need some
    return panel({series, roofs: set.roofs,
      x: {label: "operations for each byte read or written once",
        limits: [low / step ** 3, high * step], log: true},
      y: {label: "GFLOP/s", limits: [0.8 * bottom, 1.5 * top], log: true}}, width, 360);
  }
  // The controls are made once: one that is redrawn would lose the mouse.
  function control(label, attributes, act, ...more) {
    const input = html("input", attributes);
    input.addEventListener("input", () => { act(input); changed(); });
    controls.append(html("label", {}, ...label, input, ...more));
    return input;
  }
  const sliders = set.axes.map((axis, i) => {
    const output = html("output", {}), act = ({value}) => {
      const {found, chosen, runs} = output;
      state.cell = nearest(runs.cells, chosen.map((old, k) => k === i ? found[value] : old), i);
    };
    return [control([capital(axis.name)], {type: "range", min: 0}, act, output), output];
  });
  function adjust(values, chosen, runs) {
    sliders.forEach(([input, output], i) => {
      Object.assign(output, {value: chosen[i], found: values[i], chosen, runs});
      input.max = values[i].length - 1;
      input.value = values[i].indexOf(chosen[i]);
      input.setAttribute("aria-valuetext", chosen[i]);
      input.parentNode.hidden = values[i].length < 2;
    });
    for (const [kind, input] of boxes) input.checked = state.show.includes(kind);
    keys.replaceChildren(...state.picked.flatMap((stage, i) => stage ? [html("button", {type: "button", title: "Take it out",
      style: `--key:var(--c${i})`, "aria-label": `Take ${stage} out`}, stage)] : []));
  }
  const boxes = Object.entries(KINDS).filter(([kind]) => [set, set.steps].some((runs) => runs?.lines.some((line) =>
    line.kind === kind))).map(([kind, words]) => [kind, control([svg("svg", {viewBox: "-8 -8 16 16", "aria-hidden": true},
    symbol(kind, 0, 0, "var(--soft)")), words], {type: "checkbox"}, (input) => {
    state.show = state.show.filter((each) => each !== kind).concat(input.checked ? kind : []);
  })]);
  const keys = controls.appendChild(html("span", {class: "keys"}));
  keys.addEventListener("click", ({target}) => target.matches("button") && pick(target.textContent));
  addEventListener("resize", () => place.clientWidth && draw());
  draw();
  return draw;
}
