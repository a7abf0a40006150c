"""Help that fits a screen: the commands, and the most used flags of those that have many.

Defaults and choices come from `flag_table.json`, so nothing else is loaded. `--help-all` shows the
rest, by the parsers themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

from recordmill.pipelines.flag_table import read_table

_WIDTH, _FLAG_WIDTH = 80, 27
_MOST_DEFAULT = 16  # characters

COMMAND_GROUPS = {
    "Make a dataset": {
        "text": "raw text to tokenized, masked, sharded TFRecords",
        "images": "images, with labels, boxes or masks, to sharded TFRecords",
        "examples": "existing TFRecords: shuffled, resharded, merged, deduplicated",
        "vocab": "a vocabulary from text: WordPiece, BPE or Unigram",
        "plan": "estimate what such a job does, takes and costs; write nothing",
    },
    "Look into one": {
        "inspect": "show what a dataset is, and some of its records",
        "report": "write a page about a dataset: sizes, classes, masks, examples",
        "diff": "show what two datasets differ in",
        "verify": "check every record, count and checksum of a dataset",
        "bench": "measure the reading speed of a dataset, and where the time goes",
    },
    "Set up": {
        "doctor": "report what is installed, and what will not work",
        "completion": "print what completes commands and flags in bash, zsh or fish",
    },
}
_PLAN_SENTENCE = "estimate what the {} job does, takes and costs; write nothing"
COMMANDS = {name: what for group in COMMAND_GROUPS.values() for name, what in group.items()}


@dataclass(frozen=True, slots=True)
class HelpPage:
    """The short help of a command.

    Attributes:
      usage: behind `recordmill`.
      groups: title -> ((flag with its value, meaning), …).
      example: a command line; each item is a line of it.
      more: what the last line adds.
    """

    usage: str
    groups: dict[str, tuple[tuple[str, str], ...]]
    example: tuple[str, ...]
    more: str = ""


_RUN = (
    ("--runner=NAME", "this machine, or flink, dataflow, prism"),
    ("--direct_num_workers=N", "processes; 0: as many as the input is worth"),
    ("--progress=HOW", ""),
    ("--report", "end with a page about the dataset"),
)
_OUTPUT = (
    ("--output=DIR", "the folder of the dataset, local or gs://…"),
    ("--overwrite", "replace the dataset that is there"),
    ("--splits=NAME:SHARE,…", "such as train:0.9,validation:0.1"),
    ("--num_shards=N", "of the first split; or --shard_size=200MB"),
    ("--compression=KIND", ""),
    ("--max_rejected=SHARE", "of inputs; the run fails above it"),
)
_PLAN = (
    ("--plan_workers=N", "that the estimate is for; the cores of this machine are usual"),
    ("--price_per_worker_hour=X", "for the cost, in any currency"),
    ("--warnings=WHAT", "about the sample"),
)
_JOB_PAGES = {
    "text": HelpPage(
        "text --input=GLOB --output=DIR --tokenizer=FILE [flags]",
        {
            "Input": (
                ("--input=GLOB", "files, local or gs://…; train=GLOB names a split"),
                ("--input_format=FORMAT", "or jsonl, csv, parquet, arrow, sql…"),
                ("--documents=WHAT", ""),
                ("--text_field=NAME", "the field or column of the text"),
                ("--do_lower_case", "and strip accents; must fit the vocabulary"),
            ),
            "Examples": (
                ("--task=TASK", ""),
                ("--preset=NAME", "flags for a reader; --help-presets shows them"),
                ("--tokenizer=FILE", "or --vocab_file: vocab.txt, tokenizer.json, .model"),
                ("--max_seq_length=N", "tokens of an example"),
                ("--dupe_factor=N", "copies of the text, each masked in its own way"),
                ("--masked_lm_prob=SHARE", "of tokens that are masked"),
                ("--max_predictions_per_seq=N", "masked tokens of an example, at most"),
            ),
            "Output": _OUTPUT,
            "Run": _RUN,
        },
        (
            "recordmill text --input='wiki/*.txt.gz' --output=gs://bucket/wiki \\",
            "  --vocab_file=vocab.txt --splits=train:0.99,validation:0.01",
        ),
        "recordmill plan text: an estimate",
    ),
    "images": HelpPage(
        "images --input=FOLDER --output=DIR [flags]",
        {
            "Input": (
                ("--input=GLOB", "images, folders, archives or idx files"),
                ("--layout=LAYOUT", "how they are arranged: coco, yolo, voc…"),
                ("--annotations=FILE", "a table, COCO's .json, Pascal VOC's folder"),
                ("--masks=GLOB", "mask images, paired with images by name"),
                ("--label_field=NAME", "the column of labels of a table"),
            ),
            "Records": (
                ("--task=TASK", "or detection, segmentation"),
                ("--format=NAME", "whose features: tfds, imagenet, unet…"),
                ("--image_size=224x224", "unset keeps all sizes"),
                ("--resize=HOW", ""),
                ("--encoding=FORMAT", ""),
                ("--augmentations=LIST", "such as flip,rotate(20),brightness"),
                ("--copies=N", "augmented copies of each image"),
            ),
            "Output": _OUTPUT,
            "Run": _RUN,
        },
        (
            "recordmill images --input=photos --output=ds --image_size=224x224 \\",
            "  --resize=crop --splits=train:0.9,validation:0.1",
        ),
        "recordmill plan images: an estimate",
    ),
    "examples": HelpPage(
        "examples --input=GLOB --output=DIR [flags]",
        {
            "Input": (
                ("--input=GLOB", "TFRecords of any tool; train=GLOB names a split"),
                ("--in_place_metadata", "only an index and the like, beside them"),
                ("--weights=W,…", "of each glob: 2 is twice, 0.5 a half of the records"),
            ),
            "Records": (
                ("--order=ORDER", ""),
                ("--deduplicate", "leave out records that are there twice"),
                ("--random_seed=N", "of the order"),
            ),
            "Output": _OUTPUT,
            "Run": _RUN,
        },
        ("recordmill examples --input='old/*.tfrecord.gz' --output=new --num_shards=256",),
        "recordmill plan examples: an estimate",
    ),
    "vocab": HelpPage(
        "vocab --input=GLOB --output=FILE [flags]",
        {
            "Input": (
                ("--input=GLOB", "files, local or gs://…"),
                ("--input_format=FORMAT", "or jsonl, csv, parquet, arrow, sql…"),
                ("--text_field=NAME", "the field or column of the text"),
                ("--do_lower_case", "true for wordpiece, else false"),
            ),
            "Vocabulary": (
                ("--kind=KIND", "wordpiece, bpe (tokenizer.json) or unigram (.model)"),
                ("--output=FILE", "local or gs://…"),
                ("--overwrite", "replace the file that is there"),
                ("--vocab_size=N", "tokens, at most, special ones included"),
                ("--special_tokens=TOKEN,…", "the first of the file"),
                ("--min_count=N", "rarer parts of words are no tokens"),
                ("--max_unique_chars=N", "single characters; Chinese needs more"),
            ),
            "Run": _RUN[:2],
        },
        (
            "recordmill vocab --input='wiki/*.txt.gz' --output=vocab.txt",
            "recordmill vocab --input='wiki/*.txt.gz' --output=tokenizer.json --kind=bpe",
        ),
    ),
}


def _plan_page(name: str) -> HelpPage:
    """Returns the help of `recordmill plan`: the flags of a job, but for those of its run."""
    page = _JOB_PAGES[name]
    groups = {"Plan": _PLAN, **page.groups}
    del groups["Run"]
    example = tuple(
        line.replace(f"recordmill {name}", f"recordmill plan {name}") for line in page.example
    )
    return HelpPage(f"plan {page.usage}", groups, example, f"recordmill {name}: the job itself")


PAGES = _JOB_PAGES | {f"plan {name}": _plan_page(name) for name in ("text", "images")}


def main_help() -> str:
    """Returns the help of `recordmill`."""
    lines = ["usage: recordmill COMMAND [flags]", ""]
    lines.append("Raw text and images to sharded TFRecords for training, and what is in them.")
    for title, commands in COMMAND_GROUPS.items():
        lines += ["", f"{title}:", *(f"  {name:<11} {what}" for name, what in commands.items())]
    return "\n".join(
        [
            *lines,
            "",
            "Example:",
            "  recordmill vocab --input='wiki/*.txt' --output=vocab.txt",
            "  recordmill text --input='wiki/*.txt' --output=ds --vocab_file=vocab.txt",
            "  recordmill inspect ds --vocab_file=vocab.txt",
            "",
            "recordmill COMMAND --help shows its flags, recordmill --version the version.",
            "Exit status: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.",
        ]
    )


def page_help(name: str) -> str:
    """Returns the short help of a command that has one."""
    page, flags = PAGES[name], read_table()[name]
    lines = [f"usage: recordmill {page.usage}", "", f"{_sentence(name)}"]
    for title, rows in page.groups.items():
        lines += ["", f"{title}:"]
        for shown, meaning in rows:
            known = flags[shown.partition("=")[0]]
            text = meaning or ", ".join(filter(None, known["values"]))
            if known["default"] != "false" and 0 < len(known["default"]) <= _MOST_DEFAULT:
                text += f" [{known['default']}]"
            first, *more_lines = wrap(text, _WIDTH - _FLAG_WIDTH - 3)
            lines.append(f"  {shown:<{_FLAG_WIDTH}} {first}")
            lines += [f"  {'':<{_FLAG_WIDTH}} {line}" for line in more_lines]
    more = f"; {page.more}" if page.more else ""
    return "\n".join(
        [
            *lines,
            "",
            "Example:",
            *(f"  {line}" for line in page.example),
            "",
            f"--help-all shows all flags{more}.",
        ]
    )


def _sentence(name: str) -> str:
    job = name.removeprefix("plan ")
    text = COMMANDS[name] if name in COMMANDS else _PLAN_SENTENCE.format(job)
    return f"{text[0].upper()}{text[1:]}."
