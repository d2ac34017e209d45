"""What work asks for, as a text that two processes spell alike."""

from remora.wire.shapes import names_in, shape_key
from remora.wire.tokens import class_token


def test_the_same_is_spelled_alike_in_any_order_and_however_ray_rounds_it():
    assert shape_key([{"CPU": 1, "a:b": 0.1 + 0.2}, {"GPU": 1.0}]) == shape_key([{"GPU": 1}, {"a:b": 0.3, "CPU": 1.0, "x": 0}])
    assert shape_key([{"CPU": 1}]) != shape_key([{"CPU": 1}, {"CPU": 1}])


def test_its_names_are_found_in_it_whatever_they_look_like():
    assert names_in(shape_key([{"CPU": 1, "node:1.2.3.4": 0.001}, {class_token("ab"): 0.0001}])) == {
        "CPU",
        "node:1.2.3.4",
        class_token("ab"),
    }
    assert names_in(shape_key([{}])) == frozenset()
