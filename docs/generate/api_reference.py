"""Pages of the public names, from their docstrings.

`NAMES` sorts them under headings; a test compares it with what the packages export.
`recordmill.records` is small and public as a whole, so its page lists every module of the folder.
"""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from recordmill.records.spec import arguments_of, names_of, python_help

ROOT = Path(__file__).parents[2]

# Package -> heading -> public names, in the order of the page.
NAMES: dict[str, dict[str, list[str]]] = {
    "recordmill.reader": {
        "Batches": [
            "load",
            "Reader",
            "as_numpy",
            "RaggedArray",
            "torch_dataset",
            "RecordTable",
            "distribute",
            "prefetch_to_device",
            "perf_input_fn",
        ],
        "Transforms of text": [
            "mask_tokens",
            "corrupt_spans",
            "corrupted_lengths",
            "pack_sequences",
            "causal_labels",
        ],
        "Transforms of images": [
            "decode_images",
            "RandomCrop",
            "augment_images",
            "normalise_images",
        ],
        "Mixing, balance, buckets": [
            "mix",
            "temperature_weights",
            "balance_by_label",
            "balance_by_rejection",
            "class_distribution",
            "read_labels",
            "bucket_boundaries",
            "bucket_by_length",
            "stored_lengths",
        ],
        "A live feed": ["Feed", "from_queue"],
    },
    "recordmill.transforms": {
        "Elements": ["Document", "Image", "Box"],
        "Text": [
            "text_stages",
            "TextJob",
            "MergeTree",
        ],
        "Existing records": ["ReadExamples", "WriteExamples"],
        "Documents": ["ReadDocuments", "WriteText"],
        "Objectives": ["Bert", "Mlm", "MlmTokens", "Classify", "Gpt", "T5", "T5Tokens", "Ul2"],
        "Images": [
            "ReadImages",
            "WriteImages",
            "ImageSpec",
            "DecodeSpec",
            "TransformSpec",
            "AugmentationSpec",
            "EncodeSpec",
            "MaskClassSpec",
            "image_stages",
            "ImageJob",
        ],
        "Stages": ["Stage", "Done", "DoStages", "RunStages"],
        "Datasets": ["CommitDataset", "CommitSpec", "SplitSpec", "ShardSpec", "Workspace"],
        "Vocabulary": ["counting_stages", "WordCountSpec"],
    },
    "recordmill.pipelines": {
        "Jobs": [
            "write_text_dataset",
            "write_image_dataset",
            "write_examples_dataset",
            "learn_vocabulary",
            "WrittenDataset",
            "JobError",
        ],
        "Planning and running": [
            "plan_job",
            "Planner",
            "TextPlanner",
            "ImagePlanner",
            "plan_and_run",
        ],
        "Flags": [
            "parse",
            "text_request",
            "image_request",
        ],
    },
}

_INTRODUCTIONS = {
    "recordmill.reader": "Every name is imported from `recordmill.reader`; TensorFlow is loaded by "
    "the first call that needs it.",
    "recordmill.transforms": "composites to put between others, such as `WriteExamples`, and "
    "PTransforms whose elements are small descriptions: numbers of work items, of run files and of "
    "shards. [Pipelines of your own](../guides/own-pipelines.md) shows "
    "how they go together.",
    "recordmill.pipelines": "What a program of your own needs to plan a job from flags.",
    "recordmill.records": "The contract between writer and trainer. Only "
    "`recordmill.records.codec` needs numba, which `recordmill[beam]` brings; the rest needs numpy "
    "alone.",
}


def module_of(package: str, name: str) -> str:
    """Returns the module that defines an exported name, from the stub that lists the exports.

    Raises:
      KeyError: the package does not export the name.
    """
    stub = ROOT / package.removeprefix("recordmill.") / "__init__.pyi"
    modules = {
        alias.name: node.module
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return f"{package}.{modules[name]}"


def _modules(folder: str) -> list[str]:
    """Names the modules of a folder, those of `codec/` last."""
    paths = sorted((ROOT / folder).rglob("*.py"), key=lambda p: (len(p.parts), p))
    return [
        "recordmill." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in paths
        if path.name != "__init__.py"
    ]


_MODULE = re.compile(r"\b[a-z_]+(\.[a-z_]+)*\.(?=[A-Z])")  # of a name in an annotation


def options_table(function: Any) -> list[str]:
    """Returns the keyword arguments of a function that takes a spec's options, as a table.

    The site reads docstrings without importing, so it sees `**options` in their place.
    """
    parameters = inspect.signature(function).parameters
    lines = ["| argument | type | default | meaning |", "|---|---|---|---|"]
    for _, each in arguments_of(function.takes):
        parameter = parameters[each.name]
        has_default = parameter.default is not parameter.empty
        cells = (
            ", ".join(f"`{name}`" for name in names_of(each)),
            f"`{_MODULE.sub('', inspect.formatannotation(parameter.annotation))}`",
            f"`{parameter.default!r}`" if has_default else "required",
            python_help(each, function.takes),
        )
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return [*lines, ""]


def page(package: str) -> str:
    """Returns the page of a package in Markdown, with directives of mkdocstrings."""
    lines = [f"# `{package}`", "", _INTRODUCTIONS[package], ""]
    shown: list[Any] = []  # specs, each below the first function that takes it
    if package == "recordmill.records":
        for module in _modules("records"):
            lines += [f"## `{module}`", "", f"::: {module}", "    options:"]
            lines += ["      show_root_heading: false", "      show_root_toc_entry: false", ""]
    for heading, names in NAMES.get(package, {}).items():
        lines += [f"## {heading}", ""]
        for name in names:
            lines += [f"::: {module_of(package, name)}.{name}", ""]
            found = getattr(import_module(package), name)
            function = found.__init__ if isinstance(found, type) else found
            spec = getattr(function, "takes", None)
            if spec and spec not in shown:
                shown.append(spec)
                lines += options_table(function)
    return "\n".join(lines)
