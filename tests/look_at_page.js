// What test_page.py asks of the page in a browser.
function hover(mark) {
  mark.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
  return document.getElementById("tip");
}

function choose(name, value) {
  const menu = document.getElementById(name);
  menu.value = value;
  menu.dispatchEvent(new Event("input"));
}

addEventListener("load", () => {
  expect("needs no other file", performance.getEntriesByType("resource").every(
    ({name}) => name.startsWith("data:")));
  for (const {value} of document.getElementById("machine").options) {
    choose("machine", value);
    expect(`only ${value}`, all("[data-machine]").filter(isSeen).every(
      (part) => part.dataset.machine === value));
    look(value);
  }
  choose("machine", "full");
  const part = all("#stages [data-machine=full]")[0], place = all(".plots", part)[0];
  const titles = all(".panels h3", part).map((title) => title.textContent).join();
  expect(`all plots: ${titles}`, titles === "Training time: batch 128, hidden 256,How it grows with batch size and "
    + "hidden units,Phases,Roofline,Epoch by epoch,How the cost grows,How it learns");
  const roofs = all(".roof", part).map((name) => name.textContent).join();
  expect(`roofs: ${roofs}`, roofs === "memory,1 thread" && /sends to 1 thread\./.test(part.textContent));

  // One chart: the fastest first, with an axis, a whisker and what a mark says.
  const rows = () => all(".row", place), said = () => rows().map((row) =>
    all("text", row).map((text) => text.textContent).join(" ")).join();
  expect(`rows: ${said()}`, said() === "01_fast Δ ~4.00 s,peer_one 8.00 s,00_plain 32.0 s");
  const words = () => all("svg", place)[3].textContent;
  expect(`axis: ${words()}`, /Training time \(s\)/.test(words()) && words().includes("peak, 1 thread"));
  expect("whisker", all("path", rows()[0])[0].getBoundingClientRect().width > 20);
  const tip = hover(rows()[0]);
  expect(`hover: ${tip.textContent}`, isSeen(tip) && tip.textContent === "01_fast Δ\nbatch 128, hidden 256\n"
    + "training time: ~4.00 s (2.00 to 7.20)\n3 runs\nover 00_plain: 8.00× (4.80 to 15.2)\n100 GFLOP/s");
  const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  rows()[0].focus();
  press("ArrowDown");
  expect("arrows", document.activeElement === rows()[1] && tip.textContent.startsWith("peer_one\n")
    && rows().filter((row) => row.tabIndex === 0).length === 1);

  const tick = (name) => all(".controls label", place).find((label) => label.textContent === name).control.click();
  const slider = all("input[type=range]", place)[1];
  slider.value = 0;
  slider.dispatchEvent(new Event("input"));
  expect(`slider: ${said()}`, said() === "01_fast Δ 0.500 s,peer_one 1.00 s,00_plain 4.00 s"
    && slider.nextSibling.value === "32" && /hidden 32$/.test(all("h3", place)[0].textContent));
  expect(`address: ${location.hash}`, /^#stages\?batch=128&hidden=32&show=stage/.test(location.hash));
  tick("peers");
  expect(`toggle: ${said()}`, said() === "01_fast Δ 0.500 s,00_plain 4.00 s");
  tick("steps"); // they have cells of their own
  expect(`steps: ${said()}`, said() === "01_fast 0.998 s,01.1_loops 0.999 s,00_plain 4.00 s"
    && slider.nextSibling.value === "32" && /epochs 1/.test(place.textContent));
  look("steps");
  tick("steps");
  tick("peers");
  const series = () => all(".panel:not(.wide) .name", place).map((name) => name.textContent);
  expect(`picked: ${series()}`, ["00_plain", "01_fast Δ", "peer_one"].every((name) => series().includes(name)));
  rows()[1].focus();
  press("Enter");
  expect(`not picked: ${series()}`, !series().includes("peer_one") && document.activeElement === rows()[1]
    && rows()[1].getAttribute("aria-pressed") === "false" && !location.hash.includes("peer_one"));
  press("Enter");
  for (const sign of ["#%", "#stages?machine=full&batch=128&hidden=256&show=peer&pick=peer_one", "#stages?show=%"]) {
    location.hash = sign;
    dispatchEvent(new Event("hashchange"));
    if (sign.includes("show=peer")) expect(`restored: ${said()}`, said() === "peer_one 8.00 s"
      && series().every((name) => name === "peer_one"));
  }
  location.hash = "#stages?show=stage,peer";
  dispatchEvent(new Event("hashchange"));

  // Two machines: the times of the other are in ms, and only one cell is in both.
  const against = all("#stages [data-machine=full] .against")[0];
  expect("no other machine", !against.hasChildNodes());
  choose("against", "alone");
  const compared = all("tr", against).map((row) => all("th, td", row).map((cell) => cell.textContent).join());
  expect(`compared: ${compared}`, compared.join(";") === "batch 128,256 hidden;01_fast,0.000125×");
  expect(`says how: ${against.textContent}`, against.textContent.startsWith(
    "How many times as fast as on Alone: stages 0.000125× (0.000125 to 0.000125).In each cellA ratio of medians, because"));
  expect("the other in the chart", /\non Alone: 0.000500 s$/.test(hover(rows()[0]).textContent)
    && /A bar is Alone/.test(place.textContent));
  look("two machines");
  choose("machine", "alone");
  choose("against", "full");
  const back = all("#stages [data-machine=alone] .against")[0].textContent;
  expect(`compared back: ${back}`, /01_fast8000×$/.test(back));
  choose("against", "full-quick");
  expect("no cell of both", /QUICK, a quick look has no results of these settings and cells\.$/.test(
    all("#stages [data-machine=alone] .against")[0].textContent));
  choose("machine", "full");
  expect("no results", /QUICK, a quick look has no results\.$/.test(
    all("#noted [data-machine=full] .against")[0].textContent));
  choose("against", "full");
  expect("not with itself", !against.hasChildNodes());
  sets[all("#stages [data-machine=alone] .plots")[0].dataset.set].settings[1] = 4;
  choose("against", "alone");
  expect("other settings", /Alone has no results of these settings and cells\.$/.test(against.textContent));
  choose("against", "");

  const folded = all("#noted-01_fast details.folded");
  expect("folded until asked for", folded.length === 3 && folded.every((each) => !each.open));
  const turn = (fold, isOpen) => {
    fold.open = isOpen;
    fold.dispatchEvent(new Event("toggle"));
  };
  turn(folded[1], true);
  expect("one reveal", folded.every((each) => each.open));
  turn(folded[1], false);
  expect("closed alone", folded.map((each) => each.open).join() === "true,false,true");
  expect("only this machine", all("#stages-01_fast header tbody").filter((part) => !part.hidden).length === 1);
  for (const name of ["stages-01_fast", "noted-01_fast"]) {
    const diff = document.getElementById(`diff-${name}`);
    expect("the diff waits", !all("table", diff).length && /<table/.test(diff.textContent));
    turn(diff, true);
    expect("the diff is open", all(".diff td", diff).some(isSeen));
  }
  const row = all("#noted-01_fast .diff tr").find((each) => all("mark", each).length);
  expect("a diff with numbers, colours and marks", row && all("td", row).length === 4
    && /^\d+$/.test(row.cells[0].textContent) && all("#noted-01_fast .diff .k").length);
  expect("heat", getComputedStyle(all("#noted-01_fast [data-heat]")[0], "::before").content === '"70.0 %"');
  const boxes = all("#noted-01_fast .flame g");
  boxes[0].focus();
  press("ArrowRight");
  expect("flames", document.activeElement === boxes[1] && /samples/.test(tip.textContent));
  look("a diff");
  expect("all pictures have a label", all("svg").every((picture) => picture.closest("[aria-hidden]")
    || picture.getAttribute("aria-label")));
  dispatchEvent(new Event("beforeprint"));
  expect("printing unfolds", folded.every((each) => each.open));
  dispatchEvent(new Event("afterprint"));
  look("unfolded");
  const readable = (name) => ["full-quick", "full"].forEach((machine) => {
    choose("machine", machine);
    contrast(name);
  });
  if (innerWidth === 1440) readable("light");
  if (innerWidth === 1440) inMedium("dark", readable);
  answer(all("section.stage").length);
});
