"""The vocabulary that a dataset was written with."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.pipelines.inspection.record_files import RecordFiles
from recordmill.records.errors import UsageError
from recordmill.transforms.storage import files
from recordmill.transforms.text.vocabulary_lines import checksum_of, vocabulary_lines

_STORED = ("_meta/vocab.txt", "_meta/tokenizer.json", "_meta/spiece.model")


def read_vocabulary(path: str, records: RecordFiles) -> Sequence[str] | None:
    """Returns the token of each id, as its file spells it; None without a file.

    Args:
      path: of the file; "" takes the one that the dataset holds, where it holds one.
      records: of the dataset.

    Raises:
      UsageError: the file cannot be read, or is not the one that the dataset was written with.
    """
    path = path or _stored(records)
    if not path:
        return None
    tokens: Sequence[str]
    if path.endswith(_STORED[0]):  # the usual case, without the kernels of tokenizers
        tokens = vocabulary_lines(_read(path).decode("utf-8", "replace"))
        checksum = checksum_of(tokens)
    else:
        from recordmill.transforms.text.tokenizer_files import read_tokenizer

        _, vocabulary = read_tokenizer(path, _read)
        tokens, checksum = vocabulary.tokens, vocabulary.checksum
    written = records.manifest.config.get("vocabulary_blake2b") if records.manifest else None
    if written not in (None, checksum):
        raise UsageError(
            f"--vocab_file must be the vocabulary that {records.path} was written with, and "
            f"{path} is another one"
        )
    return tokens


def _stored(records: RecordFiles) -> str:
    """Returns the path of the tokenizer that the dataset holds, "" for none."""
    names = records.manifest.files if records.manifest else {}
    for name in _STORED:
        if name in names and files.exists(found := files.join(records.path, name)):
            return found
    return ""


def _read(path: str) -> bytes:
    try:
        return files.read_bytes(path)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"--vocab_file {path} cannot be read: {reason}") from error
