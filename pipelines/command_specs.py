"""The options of the commands that look into datasets, of `plan` and of `doctor`.

The first sentence of each struct is the description of its command.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from recordmill.records.errors import UsageError
from recordmill.records.spec import Spec, option

_Dataset = Annotated[str, option(
    "A dataset's folder, local or gs://…, or a folder, file or glob of TFRecords.", positional=True,
    value="DIR", path="folder", example="gs://bucket/ds"
)]  # fmt: skip
_VocabFile = Annotated[str, option(
    "The vocabulary of the records; without it the tokenizer that the dataset holds, and where it "
    "holds none, as files of other tools, token ids are shown.", aliases=("tokenizer",),
    value="FILE", path="file", example="vocab.txt"
)]  # fmt: skip
_Json = Annotated[bool, option("Prints JSON.")]


class InspectSpec(Spec, frozen=True, kw_only=True):
    """Shows what a dataset is, and some of its records; also TFRecords that other tools wrote.

    Attributes:
      dataset: a folder, file or glob.
      split: of the records; "" is the first one, or all of them with `key` and `where`.
      examples: the number of records.
      record: records by their numbers, `[SPLIT:]NUMBER`.
      key, where: choose records; None where they do not.
      images: the picture file that images are drawn into.
      vocab_file: of the dataset; "" takes the one that it holds.
      json: print JSON.
      color: "auto" is colours on a terminal.
    """

    dataset: _Dataset
    split: Annotated[str, option(
        "The split of the records; without it, the first one, or all of them with --key and "
        "--where.", example="validation"
    )] = ""  # fmt: skip
    examples: Annotated[int, option(
        "The number of records, from all over the split; with --key or --where the most.", ge=0,
        value="N", example="10"
    )] = 3  # fmt: skip
    record: Annotated[tuple[str, ...], option(
        "A record by its number in its split, as written; may be given several times.",
        value="[SPLIT:]NUMBER", split="repeat", example="train:12345"
    )] = ()  # fmt: skip
    key: Annotated[str | None, option(
        "The records that have this text in a feature, such as a file name or an id.",
        example="cats/1.jpg"
    )] = None  # fmt: skip
    where: Annotated[str | None, option(
        "The records that fulfil a condition, such as 'label==3', 'label==cat and "
        "image/width>=640', 'len(objects/label)>5'; ~ is a regular expression.", value="CONDITION",
        example="'label==cat and image/width>=640'"
    )] = None  # fmt: skip
    images: Annotated[str, option(
        "Draws the images, with masks and boxes, into this picture file.", value="FILE",
        path="file", example="sheet.png"
    )] = ""  # fmt: skip
    vocab_file: _VocabFile = ""
    json: _Json = False
    color: Annotated[Literal["auto", "always", "never"], option(
        "Colours; auto is on a terminal, unless NO_COLOR is set.", example="never"
    )] = "auto"  # fmt: skip

    def check(self) -> None:
        """Checks that records are chosen in one way."""
        for name in ("where", "key"):
            if getattr(self, name) == "":
                raise UsageError(f"--{name} must not be empty; remove it to see any records")
        if sum(map(bool, (self.record, self.key, self.where))) > 1:
            raise UsageError("--record, --key and --where choose records in three ways; give one")


class ReportSpec(Spec, frozen=True, kw_only=True):
    """Writes a page about a dataset: sizes, classes, masks, boxes, examples.

    Attributes:
      dataset: a folder, file or glob.
      html: the page; "" is the one that --report of a run writes, in `_meta` of the dataset.
      sample: the number of records that are read for it.
      vocab_file: of the dataset; "" takes the one that it holds.
    """

    dataset: _Dataset
    html: Annotated[str, option(
        "The page, local or gs://…; by default _meta/report.html in the dataset, where --report of "
        "its run writes it too, and report.html here for TFRecords of other tools.", value="FILE",
        path="file", example="report.html"
    )] = ""  # fmt: skip
    sample: Annotated[int, option(
        "The number of records that are read for what the statistics do not hold; at least the 24 "
        "that are shown. 100 more for each, of 64 kB at most, are compared with each other; 0 "
        "compares nothing.", ge=0, value="N", example="10000"
    )] = 1000  # fmt: skip
    vocab_file: _VocabFile = ""


class DiffSpec(Spec, frozen=True, kw_only=True):
    """Shows what two datasets differ in. Exit status 1 where they differ.

    Attributes:
      first, second: the datasets.
      key: the feature by which records are the same; "" compares their bytes.
      examples: the number of records to name.
      records: read all records.
      read_all: also those of shards whose checksums are equal.
      vocab_file: of the datasets; "" takes the one that a dataset holds.
      json: print JSON.
    """

    first: Annotated[str, option(
        "A dataset's folder, local or gs://…, or TFRecords.", positional=True, value="A",
        path="folder", example="ds"
    )]  # fmt: skip
    second: Annotated[str, option(
        "The other one.", positional=True, value="B", path="folder", example="other"
    )]  # fmt: skip
    key: Annotated[str, option(
        "The feature by which records are the same, such as image/filename: those with other "
        "contents have changed. Without it, a record is its bytes.", value="FEATURE",
        example="image/filename"
    )] = ""  # fmt: skip
    examples: Annotated[int, option(
        "The number of records to name of those that only one has, and of the changed ones.", ge=0,
        value="N", example="10"
    )] = 3  # fmt: skip
    records: Annotated[bool, option(
        "Reads all records; --no-records compares manifests and statistics alone.",
        example="--no-records"
    )] = True  # fmt: skip
    read_all: Annotated[
        bool, option("Reads also shards whose checksums are equal in both manifests.")
    ] = False
    vocab_file: Annotated[str, option(
        "The vocabulary of the datasets; without it, the one that a dataset holds, or token ids "
        "are shown.", aliases=("tokenizer",), value="FILE", path="file", example="vocab.txt"
    )] = ""  # fmt: skip
    json: _Json = False

    def check(self) -> None:
        """Checks that records are read where all are to be."""
        if self.read_all and not self.records:
            raise UsageError("--read_all reads records, and --no-records none; give one of them")


class VerifySpec(Spec, frozen=True, kw_only=True):
    """Checks every record, count and checksum of a dataset; names all defects.

    Attributes:
      dataset: its folder.
      workers: the number of processes; None: as many as the dataset is worth.
      temp_dir: for the reports of shards, where an engine reads them.
    """

    dataset: Annotated[str, option(
        "The folder with _SUCCESS, local or gs://….", positional=True, value="DIR", path="folder",
        example="gs://bucket/ds"
    )]  # fmt: skip
    workers: Annotated[int | None, option(
        "The number of processes; by default one for a small dataset, else one per core.", ge=1,
        example="4"
    )] = None  # fmt: skip
    temp_dir: Annotated[str | None, option(
        "The folder for the reports of shards, which all workers reach; needed where not this "
        "machine reads the shards.", path="folder", of_run=True, example="gs://bucket/temp"
    )] = None  # fmt: skip


class DoctorSpec(Spec, frozen=True, kw_only=True):
    """Reports what is installed here, on a cluster and in an image, and what will not work.

    Attributes:
      flink_master: HOST:PORT of a cluster to ask.
      image: a worker image to ask.
      json: print JSON.
      compile: compile all kernels.
    """

    flink_master: Annotated[str | None, option(
        "HOST:PORT of the dashboard of a Flink cluster.", example="localhost:8081"
    )] = None  # fmt: skip
    image: Annotated[str | None, option(
        "A worker image, which docker can run.", example="recordmill:1.0.0-text"
    )] = None  # fmt: skip
    json: Annotated[bool, option("Print JSON, for programs.")] = False
    compile: Annotated[bool, option(
        "Compile all kernels now, which takes a minute or two, so that no run waits for them; into "
        "$RECORDMILL_KERNELS, where it is set, for all users."
    )] = False  # fmt: skip


class PlanSpec(Spec, frozen=True, kw_only=True):
    """What an estimate is for, beside the options of its job.

    Attributes:
      plan_workers: the number of workers; None is that of the cores of this machine.
      price_per_worker_hour: in any currency; None estimates no cost.
    """

    group: ClassVar[str] = "plan"

    plan_workers: Annotated[int | None, option(
        "The number of workers that the estimate is for; the cores of this machine are usual.",
        ge=1, short="that the estimate is for; the cores of this machine are usual", value="N",
        of_run=True, fingerprint=False, default="the cores of this machine", example="100"
    )] = None  # fmt: skip
    price_per_worker_hour: Annotated[float | None, option(
        "The price of a worker for an hour, in any currency; without it no cost is estimated.",
        ge=0, short="for the cost, in any currency", value="X", of_run=True, fingerprint=False,
        example="0.05"
    )] = None  # fmt: skip

    def check(self) -> None:
        """Checks that the price is one."""
        if self.price_per_worker_hour == float("inf"):
            raise UsageError("--price_per_worker_hour must be a price, got inf")
