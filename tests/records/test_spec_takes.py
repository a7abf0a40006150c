"""Functions whose keyword arguments are the options of a spec."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import pytest

from recordmill.records.errors import UsageError
from recordmill.records.spec import Spec, from_arguments, option, takes


class Tea(Spec, frozen=True, kw_only=True):
    sugar: Annotated[int, option("The lumps.", ge=0)] = 1
    leaves: Annotated[float, option(f"{'How much of them. ' * 9}".strip(), aliases=("tea",))]


@takes(Tea)
def brew(water: str, **options: Any) -> tuple[str, Tea]:
    """Makes tea.

    Args:
      water: of which kind.
      options: of the tea.
    """
    return water, Tea(**options)


def test_a_call_gives_the_spec() -> None:
    assert brew("hot", leaves=2) == brew(water="hot", tea=2.0) == ("hot", Tea(leaves=2.0))


def test_the_signature_and_the_docstring_name_all() -> None:
    assert str(inspect.signature(brew)) == (
        "(water: 'str', *, sugar: int = 1, leaves: float, tea: float) -> 'tuple[str, Tea]'"
    )
    assert brew.takes is Tea  # type: ignore[attr-defined]
    lines = str(brew.__doc__).splitlines()
    assert [line.strip() for line in lines[2:5]] == [
        "Args:",
        "water: of which kind.",
        "sugar: The lumps.",
    ]
    assert lines[5].strip().startswith("leaves, tea: How much of them. How")
    assert lines[6].startswith("        of them. How")
    assert all(len(line) <= 100 for line in lines)


class Breakfast(Spec, frozen=True, kw_only=True):
    eggs: Annotated[int, option("As many, beside --leaves.")] = 2
    tea: Tea


@takes(Breakfast)
def serve(**options: Any) -> Breakfast:
    """Serves tea.

    Args:
      options: of all.
    """
    return from_arguments(Breakfast, options)


def test_options_of_a_struct_in_the_spec_are_arguments() -> None:
    assert list(inspect.signature(serve).parameters) == ["eggs", "sugar", "leaves", "tea"]
    assert serve(sugar=3, tea=1) == Breakfast(tea=Tea(sugar=3, leaves=1))
    assert "eggs: As many, beside leaves." in str(serve.__doc__)
    with pytest.raises(TypeError, match="needs the argument leaves"):
        serve()


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (
            {"sugars": 1, "tea": 1},
            TypeError,
            r"^brew\(\) has no argument named sugars; did you mean sugar\?$",
        ),
        ({"xyz": 1}, TypeError, r"^brew\(\) has no argument named xyz$"),
        ({"sugar": 1}, TypeError, r"^brew\(\) needs the argument leaves$"),
        ({"tea": 1, "leaves": 2}, UsageError, "^tea and leaves are the same: give one of them$"),
        ({"tea": "green"}, UsageError, "^tea must be a number, got 'green'$"),
        ({"tea": 1, "sugar": -1}, UsageError, "^sugar must be at least 0, got -1$"),
    ],
)
def test_mistakes(given: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        brew("hot", **given)
