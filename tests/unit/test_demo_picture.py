"""The picture that the demo draws."""

from __future__ import annotations

from examples.demo.picture import WIDTH, Box, picture

HOUSE = [
    Box("head", ("1 CPU", ""), ("cat-1", "dog-1")),
    Box("gpu", ("1 CPU, 1 GPU", "taint gpu_node"), ()),
]


def test_each_node_is_a_box_with_those_who_sit_there():
    assert picture(HOUSE, 40).splitlines() == [
        "╭─ head ──────────╮ ╭─ gpu ───────────╮",
        "│ 1 CPU           │ │ 1 CPU, 1 GPU    │",
        "│                 │ │ taint gpu_node  │",
        "│                 │ │                 │",
        "│ cat-1 dog-1     │ │                 │",
        "╰─────────────────╯ ╰─────────────────╯",
    ]


def test_many_are_folded_and_no_name_is_lost_or_broken():
    names = tuple(f"dog-black{i}" for i in range(30))
    lines = picture([Box("n1", (), names), Box("n2")], 40).splitlines()
    shown = [word for line in lines for word in line.split() if word.startswith("dog-")]
    assert tuple(shown) == names


def test_four_nodes_fit_a_terminal_whatever_they_are_called():
    boxes = [Box("a-node-with-a-very-long-name", ("taint memory-pressure",), ("an-actor-with-a-long-name",)) for _ in range(4)]
    lines = picture(boxes).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= WIDTH
    assert lines[0].startswith("╭─ a-node-with-a… ╮")


def test_no_nodes_are_no_picture():
    assert picture([]) == ""
