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

const sets = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip"), list = document.getElementById("contents");
const [select, against] = ["machine", "against"].map((id) => document.getElementById(id));
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

addEventListener("pointerover", (event) => {
  const words = event.target.closest && event.target.closest("[data-tip]");
  tip.hidden = !words || !words.dataset.tip;
  if (tip.hidden) return;
  tip.textContent = words.dataset.tip;
  const mark = words.getBoundingClientRect(), own = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(innerWidth - own.width - 4, mark.right + 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(innerHeight - own.height - 4, mark.top - own.height - 4))}px`;
});

if (matchMedia("(max-width: 69.99rem)").matches) list.open = false;
list.addEventListener("click", (event) => {
  if (event.target.matches("a") && matchMedia("(max-width: 69.99rem)").matches) list.open = false;
});
// A diff becomes a part of the page when it is opened: the browser does not read a <noscript>.
document.addEventListener("toggle", ({target}) => {
  const diff = target.querySelector(":scope > noscript");
  if (diff) diff.outerHTML = diff.textContent;
}, true);
// A link into what is folded opens it. So does printing, except for the diffs.
function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.matches("details")) target.open = true;
}
addEventListener("hashchange", unfold);
unfold();
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("main details:not([id])")) each.open = true;
});
const watch = new IntersectionObserver((entries) => entries.forEach(({target, isIntersecting}) => {
  const link = list.querySelector(`a[href="#${CSS.escape(target.id)}"]`);
  if (link) link.classList.toggle("here", isIntersecting);
}), {rootMargin: "0px 0px -70% 0px"});
document.querySelectorAll("main section").forEach((section) => watch.observe(section));

// Flame graphs: a click on a box makes it as wide as the graph, and one on the lowest undoes that. A
// word in the field marks the functions that have it, and says which part of the samples they are in.
// Graphs on one scale are as wide as their part of the longest time.
for (const place of document.querySelectorAll(".flames")) {
  const field = html("input", {type: "search", "aria-label": "function"});
  const scale = html("input", {type: "checkbox"}), label = (...parts) => html("label", {}, ...parts);
  place.prepend(html("p", {}, label("Search ", field),
    ...place.querySelector("[data-part]") ? [label(scale, " one scale of time")] : []));
  for (const figure of place.querySelectorAll(".flame")) {
    const boxes = [...figure.querySelectorAll("g")].map((group) => {
      const rect = group.querySelector("rect"), title = group.querySelector("title").textContent;
      const text = group.querySelector("text") || group.appendChild(svg("text",
        {y: Number(rect.getAttribute("y")) + 13}));
      const [, name, share] = title.match(/^(.*): \d+ samples, (.*)$/);
      return {group, rect, text, name, share,
        x: Number(rect.getAttribute("x")), width: Number(rect.getAttribute("width"))};
    });
    const all = boxes[0], found = html("output"), part = Number(figure.dataset.part);
    const words = ({name, share}, room) => room < 3 ? "" : room > name.length + share.length
      ? `${name} ${share}` : name.length <= room ? name : `${name.slice(0, room - 1)}…`;
    const zoom = ({x, width}) => {
      const wide = all.width * (scale.checked && width === all.width ? part : 1);
      for (const box of boxes) {
        const [left, right] = [box.x, box.x + box.width].map((at) =>
          all.x + Math.max(0, Math.min(wide, (at - x) * wide / width)));
        box.rect.setAttribute("x", left);
        box.rect.setAttribute("width", right - left);
        box.text.setAttribute("x", left + 3);
        box.text.textContent = words(box, Math.floor((right - left - 6) / 6.6));
      }
    };
    for (const box of boxes) box.group.addEventListener("click", () => zoom(box));
    scale.addEventListener("input", () => zoom(all));
    field.addEventListener("input", () => {
      let sum = 0, end = -1;
      for (const {rect, name, x, width} of boxes) {
        const fits = field.value && name.includes(field.value);
        rect.classList.toggle("found", Boolean(fits));
        if (fits && x > end - 0.1) [sum, end] = [sum + width, x + width];
      }
      found.value = field.value ? `${(100 * sum / all.width).toFixed(1)} % of the samples` : "";
    });
    figure.querySelector("figcaption").append(" ", found);
    zoom(all);
  }
}
