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
  const place = all("#stages [data-machine=full] .plots")[0], panel = () => all(".panel svg", place)[0];
  const titles = all("h4", place).map((title) => title.textContent).join();
  expect(`all plots: ${titles}`, titles === "The ladder: batch 128, hidden 256,Training time,"
    + "Phases,Roofline,Epoch by epoch,How the cost grows,How it learns");
  const captions = () => all("figcaption", place).map((caption) => caption.textContent);
  expect(`panels: ${captions()}`, captions().slice(0, 2).join() === "hidden 256,batch 128");
  const roofs = all(".roof", place).map((name) => name.textContent).join();
  expect(`roofs: ${roofs}`, roofs === "memory,1 thread" && /sends to 1 thread\./.test(place.textContent));
  // Two machines: the times of the other are in ms, and only one cell is in both.
  const against = all("#stages [data-machine=full] .against")[0];
  expect("no other machine", !against.hasChildNodes());
  choose("against", "alone");
  const compared = all("tr", against).map((row) => all("th, td", row).map((cell) => cell.textContent).join());
  expect(`compared: ${compared}`, compared.join(";") === "batch 128,256 hidden;01_fast,0.000125×");
  expect(`says how: ${against.textContent}`, against.textContent.startsWith(
    "How many times as fast as on Alone: a ratio of medians, because"));
  look("two machines");
  choose("machine", "alone");
  choose("against", "full");
  const back = all("#stages [data-machine=alone] .against")[0].textContent;
  expect(`compared back: ${back}`, /01_fast8000×$/.test(back));
  choose("against", "full-quick");
  expect("no cell of both", /QUICK, a quick look has no cell of these\.$/.test(
    all("#stages [data-machine=alone] .against")[0].textContent));
  choose("machine", "full");
  expect("no results", /QUICK, a quick look has no results\.$/.test(
    all("#noted [data-machine=full] .against")[0].textContent));
  choose("against", "full");
  expect("not with itself", !against.hasChildNodes());
  sets[all("#stages [data-machine=alone] .plots")[0].dataset.set].settings[1] = 4;
  choose("against", "alone");
  expect("other settings", /Alone has results of other settings only\.$/.test(against.textContent));
  choose("against", "");

  const tip = hover(all("path[data-tip]", panel())[2]);
  expect(`hover: ${tip.textContent}`, isSeen(tip) && tip.textContent === "01_fast Δ\nbatch 32, hidden 256\n"
    + "training time: ~4.00 s (2.00 to 7.20)\n3 runs\nover 00_plain: 8.00× (4.80 to 15.2)\n100 GFLOP/s");
  const bars = () => all(".bars", place)[0].textContent;
  expect(`bars: ${bars()}`, bars().startsWith("00_plain32.0 s01_fast Δ~4.00 s, 8.00× (4.80 to 15.2)"));
  const slider = all("input[type=range]", place)[1];
  slider.value = 0;
  slider.dispatchEvent(new Event("input"));
  expect(`slider: ${bars()}`, bars().startsWith("00_plain4.00 s01_fast Δ0.500 s, 8.00× (8.00 to 8.00)")
    && slider.nextSibling.value === "32" && /hidden 32$/.test(all("h4", place)[0].textContent));
  expect("slider: panels", captions()[0] === "hidden 32");

  const count = () => all("path[data-tip]", panel()).length, before = count();
  const key = all(".legend button", place)[0];
  key.click();
  expect("legend hides", count() === before - 2 && !bars().includes("00_plain")
    && key.getAttribute("aria-pressed") === "false");
  key.click();
  expect("legend shows", count() === before && bars().includes("00_plain"));
  const colours = all(".legend svg path", place).map((path) => path.getAttribute("stroke"));
  expect("no colour twice", new Set(colours).size === colours.length && colours.length === 3);

  const numbers = () => all("text", panel()).map((text) => text.textContent).join();
  const logarithmic = numbers();
  all("input[type=checkbox]", place)[0].click();
  expect(`linear: ${numbers()}`, numbers() !== logarithmic && /^0,/.test(numbers()));
  look("linear");

  const folded = all("#noted-01_fast details.folded");
  expect("folded until asked for", folded.length === 3 && folded.every((each) => !each.open));
  expect("only this machine", all("#stages-01_fast header tbody").filter((part) => !part.hidden).length === 1);
  for (const name of ["stages-01_fast", "noted-01_fast"]) {
    const diff = document.getElementById(`diff-${name}`);
    expect("the diff waits", !all("table", diff).length && /<table/.test(diff.textContent));
    diff.open = true;
    diff.dispatchEvent(new Event("toggle"));
    expect("the diff is open", all(".diff td", diff).some(isSeen));
  }
  const row = all("#noted-01_fast .diff tr").find((each) => all("mark", each).length);
  expect("a diff with numbers, colours and marks", row && all("td", row).length === 4
    && /^\d+$/.test(row.cells[0].textContent) && all("#noted-01_fast .diff .k").length);
  expect("heat", getComputedStyle(all("#noted-01_fast [data-heat]")[0], "::before").content === '"70.0 %"');
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
