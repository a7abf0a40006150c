"""Specs: what a value may be, what messages say, and what options a struct of structs has."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest

from recordmill.records.errors import RunError, UsageError
from recordmill.records.spec import (
    Spec,
    build,
    name_arguments,
    naming_arguments,
    naming_flags,
    option,
    options_of,
    plain,
    python_names,
)


class Numbers(Spec, frozen=True, kw_only=True):
    count: Annotated[int, option("A count.", ge=1)] = 3
    whole: Annotated[int | None, option("A number.", ge=0, le=9)] = None
    share: Annotated[float, option("A share.", gt=0, lt=1)] = 0.5
    any_real: Annotated[float, option("A number.")] = 0.0


class Texts(Spec, frozen=True, kw_only=True):
    group: ClassVar[str] = "texts"

    name: Annotated[str, option("A name.")] = "text"
    path: Annotated[str, option("A path.", python="where it is")] = ""
    kind: Annotated[Literal["a", "b"], option("A kind.")] = "a"
    names: Annotated[tuple[str, ...], option("Names.", split="comma")] = ()
    paths: Annotated[tuple[str, ...], option("Paths.", split="words", aliases=("files",))] = ()
    times: Annotated[tuple[float, ...], option("Times.", split="words")] = (1.0,)
    size: Annotated[
        tuple[int, int] | None,
        option("A size.", parse=lambda text: tuple(map(int, text.split("x")))),
    ] = None
    checks: Annotated[bool, option("No check.", flag="no_check", inverts=True)] = True


class Cat(Spec, frozen=True, kw_only=True, tag="cat"):
    lives: Annotated[int, option("Lives.", ge=1)] = 9
    color: Annotated[Literal["black", "white"], option("A color.")] = "black"


class Dog(Spec, frozen=True, kw_only=True, tag="dog"):
    tricks: Annotated[int, option("Tricks.")] = 0
    loud: Annotated[bool, option("Loud.", needs="tricks", fingerprint=False)] = False
    color: Annotated[Literal["brown", "white"], option("A color.")] = "brown"


class Whole(Spec, frozen=True, kw_only=True):
    numbers: Numbers = Numbers()
    texts: Texts = Texts()
    animal: Annotated[Cat | Dog, option("An animal.", flag="pet")] = Cat()
    learned: tuple[str, ...] = ()

    def check(self) -> None:
        if self.numbers.count == 13:
            raise UsageError(f"--count=13 brings bad luck to --pet={self.texts.name}")


def made(**values: Any) -> Whole:
    with naming_flags():
        return build(Whole, values)


MISTAKES = [
    ({"count": "1e3"}, "--count must be a whole number, got '1e3'"),
    ({"count": "1.0"}, "--count must be a whole number, got '1.0'"),
    ({"count": 1.5}, "--count must be a whole number, got 1.5"),
    ({"count": True}, "--count must be a whole number, got True"),
    ({"count": ""}, "--count must be a whole number, got ''"),
    ({"count": "0"}, "--count must be at least 1, got 0"),
    ({"count": 0}, "--count must be at least 1, got 0"),
    ({"count": str(1 << 63)}, "--count must be at most 9223372036854775807, got 9.223e+18"),
    ({"whole": "10"}, "--whole must be from 0 to 9, got 10"),
    ({"share": "nan"}, "--share must be in (0, 1), got nan"),
    ({"share": float("nan")}, "--share must be in (0, 1), got nan"),
    ({"any_real": "nan"}, "--any_real must be a number, got nan"),
    ({"share": "1"}, "--share must be in (0, 1), got 1.0"),
    ({"share": "half"}, "--share must be a number, got 'half'"),
    ({"name": ""}, "--name must not be empty; leave it out for 'text'"),
    ({"name": 3.5j}, "--name must be a string, got 3.5j"),
    ({"kind": "c"}, "--kind must be one of a, b, got 'c'"),
    ({"kind": "A"}, "--kind must be one of a, b, got 'A'"),
    ({"names": "a,a"}, "--names must name each once, got a,a"),
    ({"names": "a,,b"}, "--names must name each once, got a,,b"),
    ({"names": ["a", "a"]}, "--names must name each once, got a,a"),
    ({"times": [["1", "x"]]}, "--times must be a number, got 'x'"),
    ({"no_check": "maybe"}, "--no_check must be true or false, got 'maybe'"),
    ({"pet": "dgo"}, "--pet must be one of cat, dog, got 'dgo'; did you mean 'dog'?"),
    ({"pet": "dog", "lives": "3"}, "--lives has no effect with --pet=dog; leave it out"),
    ({"tricks": "3"}, "--tricks has no effect with --pet=cat; leave it out"),
    ({"pet": "dog", "loud": True}, "--loud has no effect without --tricks; leave it out"),
    ({"color": "brown"}, "--color=brown is for --pet=dog; give black or white, or leave it out"),
    ({"colour": "white"}, "there is no flag named colour; did you mean color?"),
    ({"count": "13"}, "--count=13 brings bad luck to --pet=text"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_mistakes(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        made(**values)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("values", "path", "value"),
    [
        ({"count": "7"}, "numbers.count", 7),
        ({"count": np.int64(7)}, "numbers.count", 7),
        ({"share": np.float32(0.25)}, "numbers.share", 0.25),
        ({"any_real": 1}, "numbers.any_real", 1),
        ({"any_real": "1e3"}, "numbers.any_real", 1000.0),
        ({"whole": None}, "numbers.whole", None),
        ({"name": Path("a/b")}, "texts.name", os.path.join("a", "b")),
        ({"name": 3}, "texts.name", "3"),
        ({"names": " a , b"}, "texts.names", ("a", "b")),
        ({"names": ["a", "b"]}, "texts.names", ("a", "b")),
        ({"names": ""}, "texts.names", ()),
        ({"paths": [["a", "b"], ["a"]]}, "texts.paths", ("a", "b", "a")),
        ({"paths": "a,b"}, "texts.paths", ("a,b",)),
        ({"times": [["1", "2.5"]]}, "texts.times", (1.0, 2.5)),
        ({"size": "3x4"}, "texts.size", (3, 4)),
        ({"size": (3, 4)}, "texts.size", (3, 4)),
        ({"no_check": True}, "texts.checks", False),
        ({"no_check": "false"}, "texts.checks", True),
        ({"pet": "dog", "tricks": 2, "loud": "yes"}, "animal", Dog(tricks=2, loud=True)),
        ({"pet": "dog", "color": "white"}, "animal", Dog(color="white")),
        ({"pet": "dog", "lives": "9"}, "animal", Dog()),
        ({"tricks": "0", "loud": "false"}, "animal", Cat()),
    ],
)
def test_values(values: dict[str, Any], path: str, value: object) -> None:
    found: Any = made(**values)
    for name in path.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) in (type(value), float)


def test_a_struct_checks_itself_and_names_arguments() -> None:
    with pytest.raises(UsageError, match=r"^share must be in \(0, 1\), got 2.0$"):
        Numbers(share=2.0)
    with pytest.raises(UsageError, match=r"^count=13 brings bad luck to animal='text'$"):
        Whole(numbers=Numbers(count=13))
    with pytest.raises(UsageError, match=r"^where it is must be a string, got 3$"):
        Texts(path=3)  # type: ignore[arg-type]
    with naming_flags(), pytest.raises(UsageError, match=r"^--share must be in"):
        Numbers(share=2.0)
    assert Numbers(count=np.int32(4)).count == 4
    assert type(Numbers(count=np.int32(4)).count) is int


def test_specs_are_values() -> None:
    spec = made(pet="dog", tricks=2, size="3x4")
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(made(pet="dog", tricks=2, size="3x4"))
    with pytest.raises(AttributeError):
        spec.learned = ("a",)  # type: ignore[misc]
    assert spec.animal.given() == {"tricks": 2}


def test_options_by_flag_in_order() -> None:
    options = options_of(Whole)
    assert list(options) == [
        "count", "whole", "share", "any_real", "name", "path", "kind", "names", "paths", "times",
        "size", "no_check", "pet", "lives", "color", "tricks", "loud",
    ]  # fmt: skip
    assert options["pet"].choices == ("cat", "dog")
    assert options["pet"].default == "cat"
    assert options["color"].choices == ("black", "white", "brown")
    assert options["color"].default is None, "structs have different ones"
    assert options["no_check"].default is False
    assert options["name"].group == "texts"


def test_what_is_written_of_a_spec() -> None:
    spec = made(pet="dog", tricks=1, loud=True, count=4)
    assert plain(spec, fingerprint=True) == {
        "numbers": {"count": 4}, "animal": {"name": "dog", "tricks": 1},
    }  # fmt: skip
    everything = plain(spec)
    assert everything["animal"] == {"name": "dog", "tricks": 1, "loud": True, "color": "brown"}
    assert everything["texts"]["times"] == [1.0]
    assert plain(made(), fingerprint=True) == {}
    assert plain(made(pet="dog"), fingerprint=True) == {"animal": {"name": "dog"}}


def test_messages_name_arguments() -> None:
    names = python_names(Whole)
    assert names["pet=dog"] == "animal=Dog()"
    assert name_arguments("--pet=dog needs --path, --no-loud and --count=3", names) == (
        "animal=Dog() needs where it is, loud=False and count=3"
    )
    with pytest.raises(RunError, match=r"^count must be more; run the pipeline again$"):  # noqa: SIM117
        with naming_arguments(names):
            raise RunError("--count must be more; run the same command again")
    with naming_flags(), naming_arguments(names), pytest.raises(UsageError, match="--count"):
        raise UsageError("--count")
