"""What tests share: a corpus made by code, a vocabulary for it, and datasets written once a
session."""

from __future__ import annotations

import os
import random
import signal
import string
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Who starts the tests may have these ignored (nohup, a background), and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
for _ending in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(_ending, signal.SIG_DFL)

# The same examples every time, however slow the machine is just now.
settings.register_profile(
    "recordmill", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("recordmill")

REAL_DATA = Path(__file__).parents[2] / "shared" / "data"

WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "a",
    "is",
    "that",
    "it",
    "was",
    "for",
    "on",
    "with",
    "as",
    "his",
    "they",
    "at",
    "be",
    "this",
    "from",
    "have",
    "or",
    "by",
    "one",
    "had",
    "not",
    "but",
    "what",
    "all",
    "were",
    "when",
    "we",
    "there",
    "can",
    "an",
    "your",
    "which",
    "their",
    "said",
    "if",
    "do",
    "will",
    "each",
    "about",
    "how",
    "up",
    "out",
    "them",
    "then",
    "she",
    "many",
    "some",
    "so",
    "these",
    "would",
    "other",
    "into",
    "has",
    "more",
    "her",
    "two",
    "like",
    "him",
    "see",
    "time",
    "could",
    "no",
    "make",
    "than",
    "first",
    "been",
    "its",
    "who",
    "now",
    "people",
    "my",
    "made",
    "over",
    "did",
    "down",
    "only",
    "way",
    "find",
    "use",
    "may",
    "water",
    "long",
    "little",
    "very",
    "after",
    "words",
    "called",
    "just",
    "where",
    "most",
    "know",
    "get",
    "through",
    "back",
    "much",
    "before",
    "go",
    "good",
    "new",
    "write",
    "our",
    "used",
    "me",
    "man",
    "too",
    "any",
    "day",
    "same",
    "right",
    "look",
    "think",
    "also",
    "around",
    "another",
    "came",
    "come",
    "work",
    "three",
    "word",
    "must",
    "because",
    "does",
    "part",
    "even",
    "place",
    "well",
    "such",
    "here",
    "take",
    "why",
    "things",
    "help",
    "put",
    "years",
]


def make_vocabulary() -> list[str]:
    """Special tokens, all letters and digits in both positions, and about half of the words."""
    letters = string.ascii_lowercase + string.digits
    pieces = [*letters, *(f"##{c}" for c in letters), *".,;:!?'\"()-[]"]
    tails = ["##s", "##ing", "##ed", "##er", "##ly", "##th", "##ough"]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, *tails, *WORDS[::2]]
    return list(dict.fromkeys(tokens))


def make_documents(count: int, seed: int = 0, sentences: int = 12) -> list[list[str]]:
    """Documents of sentences, a different number each."""
    rng = random.Random(seed)
    return [
        [
            " ".join(rng.choices(WORDS, k=rng.randint(3, 18))).capitalize() + rng.choice(".!?")
            for _ in range(rng.randint(1, sentences))
        ]
        for _ in range(count)
    ]


def bert_text(documents: list[list[str]]) -> str:
    """BERT's form: a sentence a line, a blank line between documents."""
    return "\n\n".join("\n".join(sentences) for sentences in documents) + "\n"


@pytest.fixture(scope="session")
def vocab_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(make_vocabulary()) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of 400 documents in BERT's form, 300 kB in all."""
    folder = tmp_path_factory.mktemp("corpus")
    for i in range(3):
        text = bert_text(make_documents(134, seed=i, sentences=20))
        (folder / f"part-{i}.txt").write_text(text, encoding="utf-8")
    return folder


RunText = Callable[..., int]


def run_text(*flags: str) -> int:
    """Runs `recordmill text` in this process, on one worker, and returns the exit status."""
    from recordmill.pipelines.command_line import main

    return main(["text", "--direct_num_workers=1", *flags])


@pytest.fixture(scope="session")
def write_dataset(
    tmp_path_factory: pytest.TempPathFactory, corpus: Path, vocab_file: str
) -> Callable[..., Path]:
    """Writes a dataset of the corpus with some flags; equal flags are written once a session."""
    written: dict[tuple[str, ...], Path] = {}

    def write(*flags: str) -> Path:
        if flags not in written:
            output = tmp_path_factory.mktemp("dataset") / "ds"
            status = run_text(
                f"--input={corpus}/*.txt", f"--output={output}", f"--vocab_file={vocab_file}",
                "--max_seq_length=64", "--max_predictions_per_seq=10", *flags,
            )  # fmt: skip
            assert status == 0
            written[flags] = output
        return written[flags]

    return write


BERT_FLAGS = (
    "--task=bert",
    "--dupe_factor=2",
    "--num_shards=3",
    "--splits=train:0.8,validation:0.2",
)


@pytest.fixture(scope="session")
def bert_dataset(write_dataset: Callable[..., Path]) -> Path:
    """Masked pairs: splits train (3 shards) and validation."""
    return write_dataset(*BERT_FLAGS)


@pytest.fixture(scope="session")
def real_data() -> Path:
    if not REAL_DATA.is_dir():
        pytest.skip("the real data is not beside this checkout")
    return REAL_DATA
