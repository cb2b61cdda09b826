"""Tests what `make slides` makes of COURSE.md, and that a browser shows it."""

import re
import shutil

import pytest
from programs import ROOT

pytest.importorskip("matplotlib")
pytest.importorskip("pygments")


def test_each_session_has_a_deck(monkeypatch, tmp_path):
    from report import slides
    decks = {}
    monkeypatch.setattr(slides, "OUT", tmp_path)
    monkeypatch.setattr(slides, "convert", lambda name, title, text: decks.update({name: text}))
    slides.main()
    assert [*decks] == [f"session_{number}" for number in range(1, 9)]
    for name, text in decks.items():
        first, *others = re.split(r"^# ", text, flags=re.MULTILINE)[1:]
        assert first.startswith(f"{name[-1]}. ")
        assert 9 <= 1 + len(others) <= 15, (name, len(others))
        assert any(each.startswith("Quiz\n") for each in others)
        for picture in re.findall(r"!\[.*\]\((.*)\)", text):
            assert (ROOT / picture).exists()
        for slide in others:
            assert len(slide.split()) < 120 and "](#" not in slide and "<!--" not in slide, slide
    assert "01.1_loop_order: measured" in decks["session_1"]


def test_in_a_browser(monkeypatch, tmp_path):
    """One slide is seen at a time, whole, and an answer after its question."""
    from look import look_at
    from report import slides
    if not shutil.which("weasyprint"):
        pytest.skip("found no weasyprint")
    decks = []
    convert = slides.convert
    monkeypatch.setattr(slides, "OUT", tmp_path)
    monkeypatch.setattr(slides, "convert", lambda name, title, text: decks.append(text))
    slides.main()
    text = "\n".join(decks)
    convert("all", "all", text)
    look_at(tmp_path / "all.html", len(re.findall("^# ", text, re.MULTILINE)), """
addEventListener("load", () => {
  const slides = all("body > section");
  const seen = (within) => within.filter((each) => getComputedStyle(each).visibility === "visible");
  expect("the second slide is not seen alone",
    (Dz.setSlide(2), seen(slides).length === 1 && seen(slides)[0] === slides[1]));
  slides.forEach((slide) => expect(`${slide.id} is not whole`,
    slide.scrollHeight <= slide.clientHeight && slide.scrollWidth <= slide.clientWidth));
  expect("answers are seen", all(".incremental").length > 9 && !seen(all(".incremental")).length);
  answer(slides.length);
});
""", tmp_path)
