// What tests ask of a page in a browser. They append this and their own questions to it.
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const faults = [];
const expect = (what, holds) => holds || faults.push(what);
document.head.append(Object.assign(document.createElement("style"),
  {textContent: ".stage { content-visibility: visible !important; }"})); // to be measured
const isSeen = (element) => element.checkVisibility();

// Nothing scrolls sideways. The words in a plot are apart from each other, whole, and not small.
function look(when) {
  const room = document.documentElement.clientWidth;
  expect(`${when}: scrolls sideways`, document.scrollingElement.scrollWidth <= room);
  for (const picture of all(".panel svg").filter(isSeen)) {
    const boxes = all("text", picture).map((text) => [text.textContent, text.getBoundingClientRect()]);
    const own = picture.getBoundingClientRect(), label = picture.getAttribute("aria-label");
    expect(`${when}: ${label}: small text`, 12 * own.width / picture.viewBox.baseVal.width >= 11);
    boxes.forEach(([one, a], i) => boxes.slice(i + 1).forEach(([other, b]) => expect(
      `${when}: '${one}' lies on '${other}' in ${label}`,
      a.right <= b.left || b.right <= a.left || a.bottom <= b.top + 2 || b.bottom <= a.top + 2)));
    for (const name of all(".roof", picture)) {
      const a = name.getBoundingClientRect();
      expect(`${when}: '${name.textContent}' lies on a mark in ${label}`, !all("path[data-tip]", picture)
        .map((mark) => mark.getBoundingClientRect()).some((b) => a.right > b.left && b.right > a.left
          && a.bottom > b.top && b.bottom > a.top));
    }
    for (const [text, box] of boxes)
      expect(`${when}: '${text}' is cut off`, box.left >= own.left - 1 && box.right <= own.right + 1);
  }
}

// All text can be read: its contrast is that of WCAG's level AA.
function contrast(when) {
  const linear = (part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  const light = (colour) => colour.match(/[\d.]+/g).slice(0, 3).reduce((sum, part, i) =>
    sum + [0.2126, 0.7152, 0.0722][i] * linear(part / 255), 0.05);
  const pairs = new Map();
  for (const element of all("body *").filter(isSeen)) {
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    const style = getComputedStyle(element), box = element.closest(".flame g, .flame svg");
    let under = element, ground;
    do
      ground = box ? getComputedStyle(box.querySelector("rect")).fill
        : getComputedStyle(under).backgroundColor;
    while (ground === "rgba(0, 0, 0, 0)" && (under = under.parentElement));
    pairs.set(`${element instanceof SVGElement ? style.fill : style.color} on ${ground}`, element);
  }
  for (const [pair, element] of pairs) {
    const [more, less] = pair.split(" on ").map(light).sort((a, b) => b - a);
    expect(`${when}: contrast ${(more / less).toFixed(2)} of ${pair}: ${element.tagName} `
      + element.textContent.slice(0, 30), more / less >= 4.5);
  }
}

// Looks at the page with the styles of a medium, such as "print", in the place of its own.
function inMedium(name, act) {
  const rules = all("style").flatMap(({sheet}) => [...sheet.cssRules]).filter((rule) =>
    rule instanceof CSSMediaRule && rule.conditionText.includes(name));
  const conditions = rules.map(({media}) => media.mediaText);
  expect(`styles for ${name}`, rules.length);
  for (const {media} of rules) media.mediaText = "all";
  act(name);
  rules.forEach(({media}, i) => { media.mediaText = conditions[i]; });
}

const answer = (count) => parent.postMessage([innerWidth, count, faults], "*");
