// Shows the machine that the reader chooses, what is behind a mark, and what a link leads to.
function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
const html = (name, attributes = {}, ...children) =>
  build(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

const {sets, sources} = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip"), list = document.getElementById("contents");
const [select, against] = ["machine", "against"].map((id) => document.getElementById(id));
// The address is #identity?choices. Both are read so that no sign in them is an error.
const address = ([id, query] = location.hash.slice(1).split("?")) =>
  [new URLSearchParams(`id=${id.replace(/[+&]/g, encodeURIComponent)}`).get("id"), new URLSearchParams(query)];
const setOf = (part) => sets[part?.querySelector(".plots")?.dataset.set];
const headingIn = (part, words) => html(part.querySelector("h2") ? "h3" : "h4", {}, words);
const isSame = (a, b) => String(a) === String(b);
// Those of another machine's results that may be compared with these.
const pairOf = (runs, other) => [other, other.steps].find((each) => each && isSame(each.settings, runs.settings)
  && each.cells.some((cell) => runs.cells.some((own) => isSame(own, cell))));

// How many times as fast as on the other machine each stage and peer is, in the cells that both have.
function compare(part, set, other, name) {
  const row = (head, cells, look = "") => html("tr", {class: look}, head, ...cells);
  const head = (scope, words) => html("th", {scope}, words);
  const pairs = [set, set.steps].flatMap((runs) => runs && pairOf(runs, other) ? [[runs, pairOf(runs, other)]] : []);
  if (!pairs.length) return [html("p", {}, `${name} has no results of these settings and cells.`)];
  const title = `How many times as fast as on ${name}`, all = {};
  const tables = pairs.map(([runs, twin]) => {
    const table = html("table", {}, html("caption", {class: "unseen"}, title));
    const columns = runs.cells.flatMap((cell, at) => {
      const there = twin.cells.findIndex((each) => isSame(each, cell));
      const found = runs.lines.map((line, i) => {
        const [mine, theirs] = [line.runs[at], twin.lines.find(({stage}) => stage === line.stage)?.runs[there]];
        if (!mine?.time || !theirs) return "-";
        const ratio = theirs.time / twin.scale / mine.time * runs.scale;
        (all[runs.lines[i].kind] ||= []).push(ratio);
        return `${digits(ratio)}×`;
      });
      return found.some((text) => text !== "-") ? [[cell, found]] : [];
    });
    for (const page of new Set(columns.map(([cell]) => String(cell.slice(0, -1))))) {
      const own = columns.filter(([cell]) => String(cell.slice(0, -1)) === page);
      const words = set.axes.slice(0, -1).map(({option}, i) => `${option} ${own[0][0][i]}`).join(", ");
      table.append(html("tbody", {}, row(head("col", words), own.map(([cell]) => head("col", cell.length
        ? `${cell[cell.length - 1]} ${set.axes[cell.length - 1].option}` : "each run")), "page"),
      ...runs.lines.flatMap(({stage}, i) => own.some(([, found]) => found[i] !== "-")
        ? [row(head("row", stage), own.map(([, found]) => html("td", {}, found[i])))] : [])));
    }
    return html("div", {class: "scroll", tabindex: 0}, html("p", {class: "small"}, runs.heading.split(";")[0]), table);
  });
  const mean = (ratios) => digits(Math.exp(ratios.reduce((sum, each) => sum + Math.log(each), 0) / ratios.length));
  return [html("p", {class: "lead"}, `${title}: ${Object.entries(KINDS).filter(([kind]) => all[kind]).map(([kind, words]) =>
    `${words} ${mean(all[kind])}× (${range(all[kind]).map(digits).join(" to ")})`).join(", ")}.`),
  html("details", {}, html("summary", {}, "In each cell"), html("p", {class: "small"}, "A ratio of medians, because runs "
    + "of two machines share no round. Above, their geometric means."), ...tables)];
}

const states = {}, drawn = new Map(); // by ladder; and what draws the plots of a place
const stateOf = (ladder) => states[ladder] ||= {show: ["stage", "peer"], cell: null, picked: null};
function refresh() {
  for (const part of document.querySelectorAll("[data-machine]")) {
    part.hidden = part.dataset.machine !== select.value;
    const place = part.querySelector(".plots");
    if (part.hidden || !place) continue;
    const ladder = part.closest("section").id, state = stateOf(ladder), name = against.selectedOptions[0].text;
    const other = [...part.parentNode.children].find((each) => each.dataset.machine === against.value);
    const isOther = against.value && other !== part;
    Object.assign(state, {other: isOther ? setOf(other) : null, otherName: name});
    part.querySelector(".against").replaceChildren(...!isOther ? [] : state.other
      ? compare(part, setOf(part), state.other, name) : [html("p", {}, `${name} has no results.`)]);
    if (drawn.has(place)) drawn.get(place)();
    else drawn.set(place, plots(place, setOf(part), state, () => { drawn.get(place)(); save(ladder); }));
  }
}
// What was chosen is in the address: #ladder?machine=...&hidden=128&show=peer&pick=...
function save(ladder) {
  const words = new URLSearchParams(), state = states[ladder];
  if (select.selectedIndex) words.set("machine", select.value);
  if (against.value) words.set("against", against.value);
  if (state) {
    axesOf(ladder).forEach(({option}, i) => state.cell && words.set(option, state.cell[i]));
    words.set("show", state.show.join());
    words.set("pick", (state.picked || []).filter(Boolean).join());
  }
  history.replaceState(null, "", `#${encodeURIComponent(ladder)}${`?${words}`.replace(/^\?$/, "")}`);
}
const axesOf = (ladder) => setOf([...document.getElementById(ladder)?.children || []].find((part) => setOf(part)))?.axes || [];
function restore(ladder, words) {
  for (const [menu, value] of [[select, words.get("machine")], [against, words.get("against")]])
    if ([...menu.options].some((each) => each.value === value)) menu.value = value;
  if (!words.has("show")) return refresh();
  const state = stateOf(ladder), cell = axesOf(ladder).map(({option}) => words.get(option));
  const list = (name) => words.get(name)?.split(",").filter(Boolean) || [];
  state.cell = cell.includes(null) ? null : cell.map((value) => isNaN(value) ? value : Number(value));
  state.show = list("show").filter((kind) => kind in KINDS);
  state.picked = list("pick").slice(0, MOST_PICKED);
  refresh();
}
document.getElementById("choice").hidden = select.options.length < 2;
for (const menu of [select, against]) menu.addEventListener("input", () => { refresh(); save(address()[0]); });

// A mark says what it is under the mouse, and with the keyboard's focus. A picture is one tab stop: the
// arrows lead from mark to mark.
for (const box of document.querySelectorAll(".flame g")) {
  const words = box.querySelector("title").textContent, isFirst = !box.previousElementSibling.matches("g");
  box.replaceChildren(...[...box.children].slice(1));
  build(box, {role: "img", "aria-label": words, "data-tip": words, tabindex: isFirst ? 0 : -1}, []);
}
addEventListener("keydown", (event) => {
  const move = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
  const mark = event.target.closest("svg [tabindex]");
  if (event.key === "Escape") tip.hidden = true;
  if (mark && (event.key === "Enter" || event.key === " ")) mark.dispatchEvent(new MouseEvent("click"));
  else if (!mark || !move) return;
  event.preventDefault();
  const marks = [...mark.closest("svg").querySelectorAll("[tabindex]")];
  const next = marks[marks.indexOf(mark) + (move || 0)];
  if (!next || next === mark) return;
  mark.setAttribute("tabindex", -1);
  next.setAttribute("tabindex", 0);
  next.focus();
});
for (const kind of ["pointerover", "focusin"]) addEventListener(kind, (event) => {
  const words = event.target.closest && event.target.closest("[data-tip]");
  tip.hidden = !words || !words.dataset.tip;
  if (tip.hidden) return;
  tip.textContent = words.dataset.tip;
  const mark = words.getBoundingClientRect(), own = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(innerWidth - own.width - 4, mark.right + 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(innerHeight - own.height - 4, mark.top - own.height - 4))}px`;
});

list.open = matchMedia("(min-width: 70rem)").matches;
// A diff becomes a part of the page when it is opened: the browser does not read a <noscript>. What a
// stage's reader is to guess is shown at once, and put away piece by piece.
document.addEventListener("toggle", ({target}) => {
  const diff = target.querySelector(":scope > noscript");
  if (diff) {
    diff.outerHTML = diff.textContent;
    between(target.querySelector(".diff"), target.id.slice("diff-".length));
  }
  if (target.matches(".folded") && target.open)
    for (const each of target.closest("section").querySelectorAll(".folded")) each.open = target.open;
}, true);
// Puts a button before each hunk, and after the last, which shows the lines that the diff leaves out.
async function between(table, name) {
  const bytes = Uint8Array.from(atob(sources), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const lines = JSON.parse(await new Response(unpacked).text())[name].split("\n");
  const numbers = (row) => [0, 2].map((i) => row.cells[i] && parseInt(row.cells[i].lastChild?.data));
  const rows = [...table.rows], last = [0, 0], end = table.insertRow(); // the number of each side
  end.className = "at";
  end.append(html("th", {colspan: 4, scope: "colgroup"}));
  [...rows, end].forEach((row, k) => {
    if (row.className !== "at") return numbers(row).forEach((number, i) => { last[i] = number || last[i]; });
    const [old, new_] = last, next = numbers(rows[k + 1] || row), side = next[1] ? 1 : 0;
    const count = (next[side] || lines.length - 1 - new_ + last[side] + 1) - 1 - last[side];
    const show = html("button", {type: "button"}, `Show ${count} ${count === 1 ? "line" : "lines"}`);
    show.addEventListener("click", () => {
      row.before(...Array.from({length: count}, (_, i) => html("tr", {class: "same"}, ...[old, new_].flatMap((from) =>
        [html("td", {}, String(from + i + 1)), html("td", {}, lines[new_ + i])]))));
      show.remove();
    });
    if (count > 0) row.cells[0].prepend(show);
    else if (row === end) row.remove();
  });
}
// A link into what is folded opens it. Its section is what is printed, and a stage's guesses are unfolded.
function follow() {
  const [name, words] = address(), target = document.getElementById(name);
  if ([...words].length || !drawn.size) restore(name, words);
  if (target && target.matches("details")) target.open = true;
  for (const each of document.querySelectorAll("main > section"))
    each.classList.toggle("asked", each.contains(target));
  if ([...words].length) [...target?.children || []].find((part) => !part.hidden && setOf(part))?.querySelector(
    words.has("show") ? ".plots" : ".against").scrollIntoView();
}
addEventListener("hashchange", follow);
follow();
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll(".folded")) each.open = true;
});
