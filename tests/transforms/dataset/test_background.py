"""Work in a thread, one value behind its caller."""

from __future__ import annotations

import threading

import pytest

from recordmill.transforms.dataset.background import OneBehind


def test_values_are_done_in_order_while_the_next_is_made() -> None:
    done: list[int] = []
    made = threading.Event()

    def work(value: int) -> None:
        assert value or made.wait(60)  # the first one ends when the second one is made
        done.append(value)

    with OneBehind(work) as behind:
        behind.add(0)
        assert not done
        made.set()
        for value in range(1, 50):
            behind.add(value)
            assert done[:value] == list(range(value))
    assert done == list(range(50))
    assert not [t for t in threading.enumerate() if t.name.startswith("one_behind")]


def test_an_error_ends_the_work_at_the_next_value_or_at_the_end() -> None:
    done: list[int] = []

    def work(value: int) -> None:
        if value == 2:
            raise ZeroDivisionError
        done.append(value)

    def run(count: int) -> None:
        with OneBehind(work) as behind:
            for value in range(count):
                behind.add(value)

    for count in (3, 9):
        done.clear()
        with pytest.raises(ZeroDivisionError):
            run(count)
        assert done == [0, 1]


def test_an_error_of_the_caller_is_the_one_that_is_raised() -> None:
    def work(value: int) -> None:
        raise ZeroDivisionError

    def run() -> None:
        with OneBehind(work) as behind:
            behind.add(1)
            raise KeyError

    with pytest.raises(KeyError):
        run()
