"""The book: what may stand on nodes, with what is in flight."""

from __future__ import annotations

import pytest

from remora.controller.context import Context
from remora.controller.effects import Done
from remora.controller.journal import Journal
from remora.controller.lanes import Lanes
from remora.controller.tokens.book import Book
from remora.port.contract import NodeView
from remora.wire.tokens import share_token

TOKEN = share_token("vc1", "CPU")


@pytest.fixture
def book() -> Book:
    made = Book(Context(lambda: 1000.0, Journal()), Lanes(lambda: 1000.0))
    made.see(NodeView("n1", "127.0.0.1", {}, {"CPU": 4.0}, {"CPU": 4.0}), sure=True)
    return made


def test_what_is_in_flight_counts(book: Book) -> None:
    write = book.ask("n1", {TOKEN: 2.0})
    assert book.out_of("vc1") == {"CPU": 20_000}
    book.validate()
    book.done(Done(write, {"CPU": 4.0, TOKEN: 2.0}))
    assert book.out_of("vc1") == {"CPU": 20_000}
    book.validate()


def test_after_an_error_it_may_stand_there(book: Book) -> None:
    book.done(Done(book.ask("n1", {TOKEN: 2.0}), error="the network failed"))
    assert book.out_of("vc1") == {"CPU": 20_000}
    assert not book.is_known("n1")
    book.validate()


def test_what_was_to_be_given_to_a_node_that_is_gone_counts_no_more(book: Book) -> None:
    """Though no report says so yet."""
    book.done(Done(book.ask("n1", {TOKEN: 2.0}), gone=True))
    assert not book.out_of("vc1")
    assert not book.is_left("vc1")
    book.validate()
