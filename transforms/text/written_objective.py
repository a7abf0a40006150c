"""The options of a dataset's objective, in a manifest of this release or of an earlier one.

Earlier releases nested them by what they were for, under other names, and had all of them for all
objectives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from recordmill.records.spec import declared_fields, tag_of
from recordmill.transforms.text.text_spec import AnyObjective

_KINDS = {tag_of(kind): kind for kind in get_args(AnyObjective)}
# Objective -> the parts of its options that earlier releases wrote.
_PARTS: dict[str, tuple[str, ...]] = {
    "bert": ("pair", "mask"), "mlm": ("mask", "window"), "mlm_tokens": ("window",),
    "classify": ("classify",), "gpt": ("language", "language.causal", "language.causal.fim"),
    **dict.fromkeys(("t5", "t5_tokens", "ul2"), ("language", "language.corruption")),
}  # fmt: skip
_NAMES = {
    "copies": "dupe_factor", "whole_word": "do_whole_word_mask", "form": "format",
    "cross_documents": "allow_cross_document_examples", "end_id": "eos_id",
    "inputs_length": "max_seq_length", "rate": "fim_rate", "spm_rate": "fim_spm_rate",
}  # fmt: skip


def objective_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns name -> value of the options of an objective, `name` among them; {} of other jobs.

    Args:
      config: of a manifest.
    """
    found = config.get("objective")
    if not isinstance(found, dict):
        return {}
    kind = _KINDS.get(str(found.get("name")))
    if "copies" not in found or kind is None:
        return dict(found)
    options = {"name": found["name"]} | dict(_old_options(found))
    return {
        name: options[name]
        for name in ("name", *(each.name for each in declared_fields(kind)))
        if name in options
    }


def readable_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration of a manifest with the objective as this release writes it."""
    objective = objective_options(config)
    return {**config, "objective": objective} if objective else dict(config)


def _old_options(objective: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for path in ("", *_PARTS[objective["name"]]):
        part: Any = objective
        for name in filter(None, path.split(".")):
            part = part.get(name) if isinstance(part, dict) else None
        for name, value in part.items() if isinstance(part, dict) else ():
            if name == "second_segment":
                yield "sentence_order", value == "order"
                yield "no_nsp", value == "none"
            elif name == "replace_words":
                yield "replacement", "per_word" if value else "per_token"
            elif name == "denoisers" and isinstance(value, list):
                yield from _old_denoisers(objective["name"], value)
            elif name == "mode_tokens" and isinstance(value, list):
                yield name, ",".join(map(str, value))
            elif not isinstance(value, dict):
                yield _NAMES.get(str(name), str(name)), value


def _old_denoisers(task: str, denoisers: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    numbers = [[each["density"], each["mean_span_length"], each["share"]] for each in denoisers]
    if task == "ul2":
        yield "denoisers", ",".join(":".join(f"{n:g}" for n in each) for each in numbers)
    else:
        (density, span, _), *_ = numbers
        yield "noise_density", density
        yield "mean_noise_span_length", span
