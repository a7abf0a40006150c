"""Labels by name."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.dataset import labels
from recordmill.transforms.dataset.labels import (
    class_names,
    first_fraction,
    forms_problem,
    named_label,
    read_labels,
    sorted_labels,
)


def test_files_of_labels(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    path.write_text("dog\r\n cat \n\n", encoding="utf-8")
    assert read_labels(str(path), kinds="number") == ("dog", "cat")
    path.write_text("\n")
    with pytest.raises(UsageError, match=r"--labels .* must have a label a line; it is empty"):
        read_labels(str(path), kinds="number")
    with pytest.raises(UsageError, match=r"--labels must be number or a file .* no: No such file"):
        read_labels("no", kinds="number")


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (["b", "a"], ("a", "b")),
        (["1", "0"], ("0", "1")),
        (["3", "1"], ("0", "1", "2", "3")),  # a class that has no example keeps its number
        (["10", "9", "-1"], ("-1", "9", "10")),
        (["07", "1"], ("1", "07")),  # 07 would not be found again under its number
        (["1", "x"], ("1", "x")),
        (["999999999", "5"], ("5", "999999999")),  # no file of a thousand million lines
        (["0.5", "1"], ("0.5", "1")),
        (["0.0", "10.0", "2.0"], tuple(map(str, range(11)))),
        (["0.5", "10.0", "2.0"], ("0.5", "10.0", "2.0")),
        (["-1.0", "10.0", "9.0"], ("-1.0", "9.0", "10.0")),
    ],
)
def test_class_names(found: list[str], names: tuple[str, ...]) -> None:
    assert class_names(found) == class_names(found[::-1]) == names


def test_whole_numbers_of_json_are_sorted_as_numbers() -> None:
    assert sorted_labels(["10.0", "2.0", "0.0"]) == ["0.0", "2.0", "10.0"]


def test_a_number_in_two_forms_is_a_mistake() -> None:
    assert not forms_problem(["1", "2.0", "1.5", "01", "a", "a.0"])
    assert "-0.0 and 0.0 occur" in forms_problem(["0.0", "-0.0", "1.0"])
    assert "1 and 1.0 occur" in forms_problem(["1.0", "0.0", "1"])


def test_a_label_is_the_name_of_the_same_whole_number() -> None:
    assert named_label("2.0", ["0", "2", "10"]) == "2"
    assert named_label("1", ["0.0", "1.0"]) == named_label("1.0", ["1", "1.0"]) == "1.0"
    assert named_label("a", ["a.0"]) == "a"
    assert named_label("1.5", ["1"]) == "1.5"


def test_many_fractions_are_no_classes() -> None:
    assert first_fraction([f"{i}.5" for i in range(21)]) == "0.5"
    assert first_fraction([f"{i}.5" for i in range(20)]) is None
    assert first_fraction([*map(str, range(30)), "0.5"]) is None


def test_doctests() -> None:
    assert doctest.testmod(labels).failed == 0
