"""`make look`: which lane wants which word in which wavefront, whose expression it is, and the page
that draws it, in a browser."""

import shutil

import pytest
from programs import ROOT, needs_full, run

from bench import ladders
from report import lanes, trace

# The first two CUDA stages that follow each other, and the last of them.
CUDA = [stage for stage in ladders.find_ladder("").stages
        if stage.is_cuda and stage.before and stage.before.is_cuda]
needs_symbols = pytest.mark.skipif(not shutil.which("eu-addr2line"), reason="found no eu-addr2line")


@pytest.mark.parametrize("text, kind", [
    ("    sum += x[s * PIXELS + k@] * weights1[k * hidden + h];", "load"),
    ("    sum[r][c] += x_tile[@row + r][i] * weights_tile[i][column + c];", "load"),
    ("    activations[s * hidden + h] @= sum > 0 ? sum : 0;", "store"),
    ("    *(float4 *)(tile + r * pitch + c) @= four;", "store"),
    ("    const uchar4 four @= *(const uchar4 *)from;", "load"),
    ("    *epoch_loss @= sum;", "store"),
    ("    ((float4 *)to)[i] = ((const float4 *)@from)[i];", "load"),
])
def test_an_access_is_found_in_its_line(text, kind):
    at, text = text.index("@"), text.replace("@", "")
    expected = {"load": {"x[s * PIXELS + k]", "x_tile[row + r][i]", "*(const uchar4 *)from",
                         "((const float4 *)from)[i]"},
                "store": {"activations[s * hidden + h]", "*(float4 *)(tile + r * pitch + c)",
                          "*epoch_loss"}}
    start, end = trace.expression(text, at + 1, kind)
    assert text[start:end] in expected[kind]


@needs_symbols
@pytest.mark.parametrize("stage", [CUDA[0], CUDA[-1]], ids=lambda stage: stage.name)
def test_a_page_draws_what_the_simulated_device_counts(stage):
    for kernel in trace.trace(stage).values():
        shown = dict(lanes.source(stage, kernel))
        for each in kernel["requests"]:
            assert each["place"].text in shown[each["place"].line]
    page = lanes.page(stage)
    assert page.count("<noscript>\n<svg") == 1 and "http" not in page.replace('xmlns="http', "")
    for pair in lanes.pairs(stage):
        cycles = [[each["cost"] if pair["sites"][each["site"]]["space"] == "shared"
                   else -(-each["cost"] // 4) for each in side["requests"]]
                  for side in pair["sides"]]
        first = pair["first"]
        assert cycles[first][pair["sides"][first]["worst"]] == max(map(max, cycles))


@needs_symbols
def test_the_pictures_of_pages_are_what_the_code_yields():
    shown = [stage for stage in CUDA if "(look.svg)" in stage.read("README.md")]
    for stage in shown:
        assert lanes.still(lanes.pairs(stage)[0]) == stage.read("look.svg")
    assert shown


@pytest.fixture
def browser():
    """Only where somebody has installed python3-selenium and chromium-driver, which are 290 MB."""
    webdriver = pytest.importorskip("selenium.webdriver")
    driver = shutil.which("chromedriver") or pytest.skip("found no chromedriver")
    options = webdriver.ChromeOptions()
    for each in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = pytest.importorskip("selenium.webdriver.chrome.service").Service(driver)
    with webdriver.Chrome(service=service, options=options) as browser:
        yield browser


@needs_full
@needs_symbols
def test_the_page_in_a_browser(browser, tmp_path):
    (tmp_path / "page.html").write_text(lanes.page(CUDA[0]))
    browser.get(f"file://{tmp_path}/page.html")

    def text(css):
        return browser.find_element("css selector", css).text

    def press(key, shift=False):
        browser.execute_script("document.dispatchEvent(new KeyboardEvent('keydown', "
                               f"{{key: '{key}', shiftKey: {str(shift).lower()}}}))")

    first = text("#which")
    worst, said = text(".cost"), text("aside tr.on")
    for there, back in (("ArrowRight", "ArrowLeft"), ("ArrowDown", "ArrowUp")):
        press(there)
        assert text("#which") != first
        assert (text("aside tr.on") == said) == (there == "ArrowDown")
        press(back)
        assert text("#which") == first
    browser.find_element("id", "next").click()
    assert text("#which") != first
    browser.find_element("id", "worst").click()
    assert (text("#which"), text(".cost")) == (first, worst)
    assert browser.find_elements("css selector", ".row.lit")
    press("ArrowRight", shift=True)
    press("ArrowRight", shift=True)
    assert text(".more").startswith("Lane 1, thread (1")
    kernels = browser.find_elements("css selector", "#kernel option")
    kernels[-1].click()
    assert text("#which").startswith("request ")
    browser.set_window_size(500, 900)  # the least of this browser
    wide, window = browser.execute_script(
        "return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= window
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource')") == []


@needs_symbols
def test_what_is_not_there_is_said():
    for words, said in ((f"STAGE={CUDA[0].name} WARP=99", "found 99 in BLOCK 0, expected one that"),
                        (f"STAGE={CUDA[0].name} WARP=x", "WARP: found 'x', expected"),
                        (f"STAGE={CUDA[0].name} KERNEL=x", "KERNEL: found 'x', expected one of"),
                        ("STAGE=01", "expected a CUDA stage")):
        assert said in run(f"make look {words}", 2, cwd=ROOT).stderr
