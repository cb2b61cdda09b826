"""Tests profiles/flamegraph.py. profile.bats looks for the functions of a stage in one."""

from xml.etree import ElementTree

from harness import flamegraph


def test_a_box_has_its_share_where_there_is_room_for_it():
    stacks = [(("main", "forward<8>"), 60), (("main",), 38), (("a & b",), 2)]
    flame = ElementTree.fromstring(flamegraph.draw("Title <1>", stacks))
    titles, texts = ([each.text for each in flame.iter(f"{{http://www.w3.org/2000/svg}}{name}")]
                     for name in ("title", "text"))
    assert titles == ["all: 100 samples, 100.0 %", "a & b: 2 samples, 2.0 %",
                      "main: 98 samples, 98.0 %", "forward<8>: 60 samples, 60.0 %"]
    assert texts == ["Title <1>", "all 100.0 %", "main 98.0 %", "forward<8> 60.0 %"]
