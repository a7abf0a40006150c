"""Turn batches into `(features, labels)`, as Keras and Estimators take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

from recordmill.reader.features import Features
from recordmill.records.errors import one_of

PADDING = "row_mask"
# The label alone, or what the features are (one, or several as a dict) and the label.
Pair: TypeAlias = (
    str
    | Annotated[
        tuple[str | Sequence[str], str],
        'like ("image", "label"), (("input_ids", "input_mask"), "labels") or "labels"',
    ]
)


def pair_maker(as_pair: Pair) -> Callable[[Features], tuple[Any, ...]]:
    """Returns a function from the features of a batch to `(features, labels)`.

    Rows of padding have weight 0: where there is `row_mask`, it is the third, Keras' sample weight.
    """

    def make(features: Features) -> tuple[Any, ...]:
        rest = dict(features)
        weights = [rest.pop(PADDING)] if PADDING in rest else []
        inputs, label = (None, as_pair) if isinstance(as_pair, str) else as_pair
        one_of("as_pair: the feature", label, rest)
        if inputs is None:
            chosen: Any = {name: value for name, value in rest.items() if name != label}
        elif isinstance(inputs, str):
            chosen = rest[one_of("as_pair: the feature", inputs, rest)]
        else:
            chosen = {name: rest[one_of("as_pair: the feature", name, rest)] for name in inputs}
        return (chosen, rest[label], *weights)

    return make
