"""What tests share: a corpus made by code, a vocabulary for it, and datasets written once a
session."""

from __future__ import annotations

import os
import random
import shutil
import signal
import string
import tempfile
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import pytest
from filelock import FileLock
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

# In their order when tests run in several processes: what takes longest must not begin last, and
# a cluster is built while other tests run.
CLUSTERS = ("flink", "prism")

REAL_DATA = Path(__file__).parents[2] / "shared" / "data"


def is_parallel(config: pytest.Config) -> bool:
    """Returns whether this is one of several processes that share the tests (pytest-xdist)."""
    return hasattr(config, "workerinput")


def cluster_of(item: pytest.Item) -> str:
    """Returns the cluster that a test runs on, "" for none."""
    return next((name for name in CLUSTERS if item.get_closest_marker(name)), "")


def _group(item: pytest.Item) -> str:
    """Returns the group of a test; tests of one group run in one process, in their order.

    Tests of a file share its fixtures, those on a cluster the cluster. A slow test begins with
    processes of its own anyway, so that each one may run beside the others.
    """
    if item.get_closest_marker("slow") and not cluster_of(item):
        return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
    return cluster_of(item) or str(item.path.relative_to(item.config.rootpath))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sorts the tests, and groups them for several processes."""
    for item in items:
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(_group(item)))
    # Jobs on clusters come late: what they need is built meanwhile. In several processes not last:
    # one of them does all of these, while the others would have nothing left to do.
    items.sort(key=lambda item: bool(cluster_of(item)))
    if is_parallel(config):
        others = [item for item in items if not cluster_of(item)]
        third = len(others) // 3
        items[:] = [*others[:third], *items[len(others) :], *others[third:]]
        items.sort(key=lambda item: not item.get_closest_marker("slow"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Checks that pytest-xdist took the groups: without them each process makes every fixture."""
    if is_parallel(session.config) and session.config.getoption("loadgroup"):
        lost = [item.nodeid for item in session.items if "@" not in item.nodeid]
        if lost:
            raise pytest.UsageError(f"pytest-xdist does not group tests, such as {lost[0]}")


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_folder(request: pytest.FixtureRequest) -> Iterator[None]:
    """Locks and leftovers of one process of the tests must not be seen by the others.

    The path is short, as sockets need it.
    """
    if not is_parallel(request.config):
        yield
        return
    with (
        tempfile.TemporaryDirectory(prefix="rm-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield


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


SharedFolder = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def shared_folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> SharedFolder:
    """Returns a folder by name, filled once a session, by whichever process needs it first.

    Tests only read what lies in it.
    """
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if is_parallel(request.config) else base) / "shared"
    root.mkdir(exist_ok=True)

    def fill_once(name: str, fill: Callable[[Path], object]) -> Path:
        folder, filled = root / name, root / f"{name}.filled"
        with FileLock(root / f"{name}.lock"):
            if not filled.exists():
                shutil.rmtree(folder, ignore_errors=True)  # what a failure left
                folder.mkdir()
                fill(folder)
                filled.touch()
        return folder

    return fill_once


@pytest.fixture(scope="session")
def vocab_file(shared_folder: SharedFolder) -> str:
    text = "\n".join(make_vocabulary()) + "\n"
    folder = shared_folder(
        "vocabulary", lambda folder: (folder / "vocab.txt").write_text(text, encoding="utf-8")
    )
    return str(folder / "vocab.txt")


@pytest.fixture(scope="session")
def corpus(shared_folder: SharedFolder) -> Path:
    """Three files of 400 documents in BERT's form, 300 kB in all."""

    def fill(folder: Path) -> None:
        for i in range(3):
            text = bert_text(make_documents(134, seed=i, sentences=20))
            (folder / f"part-{i}.txt").write_text(text, encoding="utf-8")

    return shared_folder("corpus", fill)


RunText = Callable[..., int]


def run_text(*flags: str) -> int:
    """Runs `recordmill text` in this process, on one worker, and returns the exit status."""
    from recordmill.pipelines.command_line import main

    return main(["text", "--direct_num_workers=1", *flags])


@pytest.fixture(scope="session")
def write_dataset(
    shared_folder: SharedFolder, corpus: Path, vocab_file: str
) -> Callable[..., Path]:
    """Writes a dataset of the corpus with some flags; equal flags are written once a session."""

    def write(*flags: str) -> Path:
        task = next((flag for flag in flags if flag.startswith("--task=")), "--task=bert")
        predictions = ["--max_predictions_per_seq=10"] * (task in ("--task=bert", "--task=mlm"))

        def fill(folder: Path) -> None:
            status = run_text(
                f"--input={corpus}/*.txt", f"--output={folder}/ds", f"--vocab_file={vocab_file}",
                "--max_seq_length=64", *predictions, *flags,
            )  # fmt: skip
            assert status == 0

        digest = blake2b("\n".join(flags).encode(), digest_size=8).hexdigest()
        return shared_folder(f"dataset-{digest}", fill) / "ds"

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
