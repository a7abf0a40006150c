"""A tokenizer file as users name it: read, and checked against what is done with its text."""

from __future__ import annotations

from collections.abc import Iterable

from recordmill.records.errors import UsageError
from recordmill.transforms.dataset.writable import reason
from recordmill.transforms.storage import files
from recordmill.transforms.subwords.hugging_face import JsonTokenizer
from recordmill.transforms.subwords.tokenizer import VOCAB_TXT, Tokenizer
from recordmill.transforms.text.text_job import TextJob
from recordmill.transforms.text.tokenizer_files import read_tokenizer

_CASED_SHARE = 0.05  # uncased vocabularies have a few tokens that lower-casing does not reach
_MOST_VOCABULARY_BYTES = 1 << 28
_PADDED_BY_ZERO = ("bert", "mlm", "classify")


def read_vocabulary(path: str) -> tuple[bytes, Tokenizer]:
    """Reads --tokenizer, which is also --vocab_file.

    Returns:
      The content to store, and the tokenizer.

    Raises:
      UsageError: it is missing, empty or no tokenizer.
    """
    return read_tokenizer(path, _read_file)


def _read_file(path: str) -> bytes:
    try:
        return files.read_limited(path, _MOST_VOCABULARY_BYTES)
    except OSError as error:
        raise UsageError(
            f"--vocab_file {path} cannot be read: {reason(error)}; `recordmill vocab` makes one"
        ) from error


def check_case(vocabulary: Tokenizer, *, lower_case: bool, refuse: bool = True) -> None:
    """Checks that the vocabulary's case is that of the text once it is tokenized.

    Args:
      vocabulary: to be used.
      lower_case: as in --do_lower_case.
      refuse: as in --check_case.

    Raises:
      UsageError: words with capital letters would all be unknown, or no token with one be used;
        or there is nothing to refuse, so --no-check_case has no effect.
    """
    source, share = vocabulary.source, vocabulary.share_of_capitals
    fits = share is None or (share < _CASED_SHARE if lower_case else share > 0)
    if not refuse and fits:
        raise UsageError(
            f"--no-check_case has no effect where the case of --vocab_file {source} fits; leave it "
            "out"
        )
    if not refuse or share is None:
        return
    if not lower_case and not share:
        raise UsageError(
            f"--no-do_lower_case needs a vocabulary with capital letters, and --vocab_file "
            f"{source} has none: every word with one would be [UNK]; give --do_lower_case, or "
            "--no-check_case if that is meant"
        )
    if lower_case and share >= _CASED_SHARE:
        raise UsageError(
            f"--vocab_file {source} is cased ({share:.0%} of its tokens have capital letters), and "
            "lower-cased text never uses those; give --no-do_lower_case, or --no-check_case if "
            "that is meant"
        )


def padding_problem(tokenizer: Tokenizer, task: str) -> str:
    """Returns that records are padded by another id than the tokenizer's; "" where they are not."""
    pad_id = tokenizer.special.pad_id
    if not pad_id or task not in _PADDED_BY_ZERO:
        return ""
    return (
        f"--tokenizer {tokenizer.source} has the padding token as id {pad_id}, and --task={task} "
        "pads with id 0, as BERT does: let the model go by input_mask, or use a vocabulary whose "
        "id 0 is [PAD]"
    )


def check_own_normalization(
    tokenizer: Tokenizer, job: TextJob, *, do_lower_case: bool | None
) -> None:
    """Refuses flags that have no effect beside the file of the tokenizer.

    Args:
      tokenizer: to be used.
      job: whose other flags are looked at.
      do_lower_case: as it was given; None where it was not.

    Raises:
      UsageError: names the flag, and why.
    """
    is_vocab_file = tokenizer.stored_name == VOCAB_TXT
    if is_vocab_file and job.allow_special_tokens:
        raise UsageError(
            "--allow_special_tokens has no effect with a vocab.txt, whose [MASK] is text in text; "
            "leave it out"
        )
    if not is_vocab_file and do_lower_case is not None:
        flag = "--do_lower_case" if do_lower_case else "--no-do_lower_case"
        raise UsageError(
            f"{flag} has no effect with --tokenizer {tokenizer.source}, which says that itself; "
            "leave it out"
        )


def lines_of_fastokens(
    tokenizer: Tokenizer, texts: Iterable[str], *, allow_special_tokens: bool
) -> str:
    """Returns which lines of a BPE fastokens does, compared on some texts; see `TextJob`."""
    if not isinstance(tokenizer, JsonTokenizer) or tokenizer.kind != "bpe":
        return ""
    return tokenizer.compare(list(texts), allow_special_tokens=allow_special_tokens)
