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
const setOf = (part) => sets[part.querySelector(".plots")?.dataset.set];

// How many times as fast as on the other machine each stage and peer is, in the cells that both have.
function compare(set, other, name) {
  const row = (head, cells, look = "") => html("tr", {class: look}, head, ...cells);
  const head = (scope, words) => html("th", {scope}, words);
  const lines = set.lines.filter((line) => line.all).map((line) =>
    [line, other.lines.find((each) => each.all && each.stage === line.stage)]);
  const ratios = (cell) => lines.map(([line, twin]) => {
    const [mine, theirs] = [[set, line], [other, twin]].map(([{cells, scale}, found]) => {
      const run = found && found.runs[cells.findIndex((each) => String(each) === String(cell))];
      return run && run.time / scale;
    });
    return mine && theirs ? `${digits(theirs / mine)}×` : "-";
  });
  const columns = set.cells.map((cell) => [cell, ratios(cell)]).filter(([, found]) =>
    found.some((text) => text !== "-"));
  const words = String(set.settings) !== String(other.settings) ? "has results of other settings only"
    : columns.length ? "" : "has no cell of these";
  if (words) return [html("p", {}, `${name} ${words}.`)];
  const title = `How many times as fast as on ${name}`;
  const table = html("table", {}, html("caption", {class: "unseen"}, title));
  for (const page of new Set(columns.map(([cell]) => String(cell.slice(0, -1))))) {
    const own = columns.filter(([cell]) => String(cell.slice(0, -1)) === page);
    const words = set.axes.slice(0, -1).map(({option}, i) => `${option} ${own[0][0][i]}`).join(", ");
    table.append(html("tbody", {}, row(head("col", words), own.map(([cell]) => head("col", cell.length
      ? `${cell[cell.length - 1]} ${set.axes[cell.length - 1].option}` : "each run")), "page"),
      ...lines.flatMap(([{stage}], i) => own.some(([, found]) => found[i] !== "-")
        ? [row(head("row", stage), own.map(([, found]) => html("td", {}, found[i])))] : [])));
  }
  return [html("p", {class: "small"}, `${title}: a ratio of medians, because runs of two machines `
    + "share no round."), html("div", {class: "scroll", tabindex: 0}, table)];
}

function choose() {
  for (const part of document.querySelectorAll("[data-machine]")) {
    part.hidden = part.dataset.machine !== select.value;
    const place = part.querySelector(".against");
    const other = [...part.parentNode.children].find((each) => each.dataset.machine === against.value);
    if (part.hidden || !place) continue;
    place.replaceChildren(...against.value && other !== part ? setOf(other) ? compare(setOf(part),
      setOf(other), against.selectedOptions[0].text)
      : [html("p", {}, `${against.selectedOptions[0].text} has no results.`)] : []);
  }
  for (const place of document.querySelectorAll(".plots"))
    if (!place.hasChildNodes() && place.clientWidth) plots(place, sets[place.dataset.set]);
}
document.getElementById("choice").hidden = select.options.length < 2;
for (const each of [select, against]) each.addEventListener("input", choose);
choose();

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
// stage's reader is to guess is shown at once.
document.addEventListener("toggle", ({target}) => {
  const diff = target.querySelector(":scope > noscript");
  if (diff) {
    diff.outerHTML = diff.textContent;
    between(target.querySelector(".diff"), target.id.slice("diff-".length));
  }
  if (target.matches(".folded"))
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
  const target = document.getElementById(address()[0]);
  if (target && target.matches("details")) target.open = true;
  for (const each of document.querySelectorAll("main > section"))
    each.classList.toggle("asked", each.contains(target));
}
addEventListener("hashchange", follow);
follow();
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll(".folded")) each.open = true;
});
