"""Tests what `make slides` makes of COURSE.md, without pandoc."""

import re

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
