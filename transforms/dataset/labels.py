"""Labels by name: files of them, and the classes that the labels of an input become."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Container, Iterable

from recordmill.records.errors import RunError, UsageError
from recordmill.transforms.storage import files

LABELS_PATH = "labels.txt"
MAX_CLASSES = 100_000
_MOST_BYTES = 1 << 26  # of a file of labels
_MOST_FRACTIONS = 20  # as classes
_WHOLE = re.compile(r"(-?[0-9]+)(\.0+)?")


def read_labels(path: str, *, kinds: str) -> tuple[str, ...]:
    """Reads a file of labels, one a line, in order of their ids.

    Args:
      path: of the file.
      kinds: what else --labels may be, for the message.

    Raises:
      UsageError: it cannot be read or is empty.
    """
    try:
        text = files.read_limited(path, _MOST_BYTES).decode("utf-8-sig")
        # Not splitlines, which would make two labels of one with a rarer separator in it.
        lines = text.replace("\r\n", "\n").split("\n")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--labels must be {kinds} or a file of labels; {path}: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from error
    labels = tuple(line.strip() for line in lines if line.strip())
    if not labels:
        raise UsageError(f"--labels {path} must have a label a line; it is empty")
    return labels


def labels_file(names: Iterable[str]) -> bytes:
    """Returns the content of `labels.txt`: line i is class i, from 0 on."""
    return "".join(f"{name}\n" for name in names).encode()


def breaks_lines(name: str) -> bool:
    """Tells whether a label cannot be a line of text."""
    return not name.isprintable() and any(
        unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in name
    )


def is_fraction(name: str) -> bool:
    """Tells whether a label is a number that is not whole."""
    try:
        return not float(name).is_integer()
    except (ValueError, OverflowError):
        return False


def first_fraction(names: Collection[str]) -> str | None:
    """Returns one of the labels where most are fractions, so that each would be its own class."""
    fractions = sorted(filter(is_fraction, names))
    many = len(names) > _MOST_FRACTIONS and 2 * len(fractions) > len(names)
    return fractions[0] if many else None


def check_class_count(field: str, labels: Collection[str]) -> None:
    """Checks that the labels of a field can be classes.

    Raises:
      RunError: there are too many.
    """
    if len(labels) > MAX_CLASSES:
        raise RunError(
            f"--label_field={field} has more than {MAX_CLASSES:,} different labels, such as "
            f"{min(labels)!r}; name the field of the class, or give --labels=number if it is a "
            "number to be predicted"
        )


def class_names(labels: Collection[str]) -> tuple[str, ...]:
    """Returns the names of class 0, 1, …, from the labels that occur.

    Whole numbers from 0 on are class numbers as they are, and those that do not occur are classes
    without examples. Other whole numbers are sorted as numbers, and all else as text. JSON and
    tables may have whole numbers as 1.0; see `whole_form`.

    >>> class_names({"1", "3"})
    ('0', '1', '2', '3')
    >>> class_names({"1.0", "0.0"})
    ('0', '1')
    >>> class_names({"-1", "1"})
    ('-1', '1')
    >>> class_names({"spam", "ham"})
    ('ham', 'spam')
    """
    wholes = [whole_form(name) for name in labels]
    if not all(_WHOLE.fullmatch(name) for name in labels):
        return tuple(sorted(labels))
    numbers = [int(name) for name in wholes]
    plain = all(str(number) == name for number, name in zip(numbers, wholes, strict=True))
    if plain and labels and min(numbers) >= 0 and max(numbers) < MAX_CLASSES:
        return tuple(map(str, range(max(numbers) + 1)))
    return tuple(sorted(labels, key=_by_number))


def sorted_labels(labels: Collection[str]) -> list[str]:
    """Returns labels in order: as numbers where all are whole numbers from 0 on, else as text."""
    if all(_WHOLE.fullmatch(name) and not name.startswith("-") for name in labels):
        return sorted(labels, key=_by_number)
    return sorted(labels)


def whole_form(name: str) -> str:
    """Returns a label, "1" for the whole number "1.0", and "0" for "-0.0"."""
    whole = _WHOLE.fullmatch(name)
    return ("0" if whole[1] == "-0" else whole[1]) if whole else name


def named_label(label: str, names: Container[str]) -> str:
    """Returns the name that a label is, exactly or as the same whole number; the label for none.

    >>> named_label("2.0", ["1", "2"]), named_label("2", ["1.0", "2.0"]), named_label("a", ["a.0"])
    ('2', '2.0', 'a')
    """
    whole = whole_form(label)
    forms = (label, whole, f"{whole}.0") if _WHOLE.fullmatch(label) else ()
    return next((form for form in forms if form in names), label)


def _by_number(name: str) -> tuple[int, str]:
    return int(whole_form(name)), name


def forms_problem(
    labels: Collection[str], *, listing: str = "list them in a file of --labels"
) -> str:
    """Returns that labels have one number in two forms, such as 1 and 1.0; "" where none does.

    Args:
      labels: that occur.
      listing: what to do if they are two classes.
    """
    first: dict[str, str] = {}
    for name in sorted(labels):
        if (other := first.setdefault(whole_form(name), name)) != name:
            return (
                f"labels must have a number in one form, and {other} and {name} occur: write all "
                f"in one form in the input, or {listing} if they are two classes"
            )
    return ""


def check_printable(names: Iterable[str]) -> None:
    """Checks that labels can be lines of `labels.txt`.

    Raises:
      UsageError: names the first that cannot.
    """
    for name in names:
        if breaks_lines(name):
            raise UsageError(
                f"labels must have neither control characters nor line separators, because "
                f"labels.txt has one a line; got {name!r}: rename it in the input"
            )
