"""The flags of language models, packing and fill-in-the-middle, and where they have no effect."""

from __future__ import annotations

from collections.abc import Set

from recordmill.pipelines.arguments import BooleanFlag
from recordmill.pipelines.beam_internals import FlagGroup
from recordmill.pipelines.flags import TextFlags
from recordmill.records.errors import UsageError
from recordmill.records.text_formats import CAUSAL_FORMATS, CORRUPTION_FORMATS
from recordmill.transforms.text.language_tasks import UL2_DENOISERS
from recordmill.transforms.text.objective_spec import LANGUAGE_OBJECTIVES
from recordmill.transforms.text.packing import PACKINGS

_CORRUPTED = ("t5", "t5_tokens", "ul2")
# Flag -> the tasks that it has a meaning for.
LANGUAGE_FLAGS = {
    "format": ("gpt", "t5", "ul2"),
    "packing": ("mlm", *LANGUAGE_OBJECTIVES),
    "pad_id": ("gpt", "t5", "ul2"),
    "eos_id": LANGUAGE_OBJECTIVES,
    "prompt_field": ("gpt",),
    "loss_mask": ("gpt",),
    "fim_rate": ("gpt",),
    "fim_spm_rate": ("gpt",),
    "noise_density": ("t5", "t5_tokens"),
    "mean_noise_span_length": ("t5", "t5_tokens"),
    "denoisers": ("ul2",),
    "first_sentinel_id": ("t5", "ul2"),
    "mode_tokens": ("ul2",),
    "decoder_start_id": ("t5", "ul2"),
    "sentence_order": ("bert",),
    "no_nsp": ("bert",),
}


def add_language_arguments(group: FlagGroup) -> None:
    """Adds the flags."""
    formats = tuple(dict.fromkeys((*CAUSAL_FORMATS, *CORRUPTION_FORMATS)))
    group.add_argument(
        "--format", choices=formats,
        help="gpt, t5, ul2: the features of records. cerebras: what Cerebras' Model Zoo reads; "
        "seqio: targets, or inputs and targets, not padded; maxtext, of gpt: inputs and targets "
        "with segments and positions. By default cerebras for gpt, and seqio for the others.",
    )  # fmt: skip
    group.add_argument(
        "--packing", choices=PACKINGS,
        help="mlm, gpt, t5, t5_tokens, ul2: none: a document begins a row. concat: documents are "
        "joined and cut where rows end. best_fit: rows are filled with whole documents, and only "
        "documents longer than a row are cut. By default best_fit for gpt, and none for the "
        "others.",
    )  # fmt: skip
    group.add_argument(
        "--pad_id", type=int, metavar="ID",
        help="gpt, t5, ul2: the id behind the tokens of a row, by default the tokenizer's; of one "
        "without, as GPT-2's, gpt takes the end of text, and others 0.",
    )  # fmt: skip
    group.add_argument(
        "--eos_id", type=int, metavar="ID",
        help="gpt, t5, t5_tokens, ul2: the id behind documents, by default the tokenizer's end of "
        "text, or [SEP].",
    )  # fmt: skip
    group.add_argument(
        "--loss_mask", action=BooleanFlag,
        help="gpt: nothing is to be predicted of prompts (--prompt_field): input_mask, or "
        "targets_segmentation, is 1 on answers alone.",
    )  # fmt: skip
    group.add_argument(
        "--fim_rate", type=float, default=0.0,
        help="gpt: the share of documents whose middle is moved to their end, for models that "
        "fill in the middle.",
    )  # fmt: skip
    group.add_argument(
        "--fim_spm_rate", type=float, default=0.5,
        help="gpt: of those the share in the order suffix, prefix, middle (SPM); the others are in "
        "the order prefix, suffix, middle (PSM).",
    )  # fmt: skip
    _add_corruption_arguments(group)
    group.add_argument(
        "--sentence_order", action=BooleanFlag,
        help="bert: the label says whether segments are swapped, as in ALBERT; no segment is "
        "random.",
    )  # fmt: skip
    group.add_argument(
        "--no_nsp", action=BooleanFlag,
        help="bert: segments follow each other, and there is no next_sentence_labels.",
    )  # fmt: skip


def _add_corruption_arguments(group: FlagGroup) -> None:
    """Adds the flags of span corruption."""
    group.add_argument(
        "--noise_density", type=float, default=0.15,
        help="t5, t5_tokens: the share of tokens that spans of noise cover.",
    )  # fmt: skip
    group.add_argument(
        "--mean_noise_span_length", type=float, default=3.0,
        help="t5, t5_tokens: the mean length of such a span, in tokens.",
    )  # fmt: skip
    group.add_argument(
        "--denoisers", default=UL2_DENOISERS, metavar="DENSITY:SPAN:SHARE,…",
        help="ul2: noise density, mean span length and share of each denoiser, of which a row "
        "draws one. A span longer than any row makes the end of the row the only span, as a "
        "prefix language model has it.",
    )  # fmt: skip
    group.add_argument(
        "--first_sentinel_id", type=int, metavar="ID",
        help="t5, ul2: the id from which on sentinels descend, by default the tokenizer's "
        "<extra_id_0>, …, or the last of 100 ids behind the vocabulary.",
    )  # fmt: skip
    group.add_argument(
        "--mode_tokens", default="", metavar="R,S,X",
        help="ul2: tokens, or their ids, of which one begins each input: the first where the row's "
        "denoiser is regular, the second where it is a prefix language model, the third where it "
        "is extreme, with spans of 12 tokens or more or a density of 0.3 or more. By default none.",
    )  # fmt: skip
    group.add_argument(
        "--decoder_start_id", type=int, metavar="ID",
        help="t5, ul2, with --format=cerebras: the id that decoder inputs begin with, by default "
        "that of <s>, or of padding.",
    )  # fmt: skip


def chosen_packing(options: TextFlags) -> str:
    """Returns --packing, or what it is by default."""
    return options.packing or ("best_fit" if options.task == "gpt" else "none")


def check_language_flags(options: TextFlags, given: Set[str]) -> None:
    """Refuses flags of packing and language models that have no effect beside the others.

    Args:
      options: of the text job; each flag has a meaning for its task.
      given: those that have not their default value.

    Raises:
      UsageError: names the flag, and why it has no effect.
    """
    task, form, packing = options.task, options.format, chosen_packing(options)
    if task != "gpt" and form == "maxtext":
        raise UsageError(f"--format=maxtext is for --task=gpt; --task={task} has {_CHOICES}")
    is_seqio = task == "gpt" and form == "seqio"
    is_cerebras = task == "gpt" and form in (None, "cerebras")
    unpadded = is_seqio or (task in ("t5", "ul2") and form in (None, "seqio"))
    packed_mlm = task == "mlm" and packing != "none"
    without_effect = {
        "loss_mask": (not options.prompt_field, "without --prompt_field"),
        "fim_spm_rate": (not options.fim_rate, "without --fim_rate"),
        "pad_id": (unpadded, "with --format=seqio, whose records are not padded"),
        "decoder_start_id": (form != "cerebras", "without --format=cerebras"),
        "use_segment_ids": (task == "gpt" and not is_cerebras, f"with --format={form}"),
        "use_position_id": (
            (task == "gpt" and not is_cerebras) or (task == "mlm" and not packed_mlm),
            f"with --format={form}" if task == "gpt" else "without --packing",
        ),
        "no_nsp": (options.sentence_order, "with --sentence_order, whose label is another"),
    }  # fmt: skip
    for name in _WINDOW_FLAGS:
        without_effect[name] = packed_mlm, f"with --packing={packing}"
    for name, (is_without, why) in without_effect.items():
        if is_without and name in given:
            raise UsageError(f"--{name} has no effect {why}; leave it out")
    if is_seqio and options.loss_mask:
        raise UsageError(
            "--loss_mask needs --format=cerebras or maxtext, because records of seqio have targets "
            "alone"
        )
    if options.prompt_field and options.prompt_field == options.text_field:
        raise UsageError(
            f"--prompt_field must be another field than --text_field={options.text_field}"
        )
    copies = options.dupe_factor not in (None, 1)
    if copies and (task == "t5_tokens" or (task == "gpt" and not options.fim_rate)):
        why = (
            "is corrupted on reading" if task == "t5_tokens" else "has no draws without --fim_rate"
        )
        raise UsageError(f"--dupe_factor must be 1 for --task={task}, which {why}")


_WINDOW_FLAGS = (
    "overlap_size", "short_seq_prob", "min_short_seq_length", "allow_cross_document_examples",
)  # fmt: skip
_CHOICES = " and ".join(f"--format={form}" for form in CORRUPTION_FORMATS)
