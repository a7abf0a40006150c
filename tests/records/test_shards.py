from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.records.errors import UsageError, one_of
from recordmill.records.shards import (
    ShardName,
    is_shard_file,
    is_shard_path,
    shard_folder,
    shard_template,
)


def test_paths():
    name = ShardName("train", 3, 80)
    assert name.stem == "train-00003-of-00080"
    assert name.path == "train/train-00003-of-00080.tfrecords"
    assert name.index_path == "_meta/index/train/train-00003-of-00080.idx"
    assert ".tfrecord" not in name.index_path


@given(
    split=st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True),
    index=st.integers(0, 10**7),
    more=st.integers(1, 10**7),
)
def test_parse_reads_what_was_formatted(split, index, more):
    name = ShardName(split, index, index + more)
    folder, _, file_name = name.path.partition("/")
    assert folder == split
    assert ShardName.parse(file_name) == name


def test_names_sort_by_number():
    names = [ShardName("train", i, 120_000) for i in (100_000, 10, 0, 99_999, 2)]
    assert [name.index for name in sorted(names)] == [0, 2, 10, 99_999, 100_000]


@pytest.mark.parametrize(
    "name",
    ["train-3-of-80.tfrecords", "train-00003-of-00080.tfrecord", "train.tfrecords", "",
     "train-00003-of-00080.tfrecords.idx", "x/train-00003-of-00080.tfrecords~"],
)  # fmt: skip
def test_other_files_are_no_shards(name):
    with pytest.raises(ValueError, match=r"is not <split>-NNNNN-of-NNNNN\.tfrecords"):
        ShardName.parse(name)


@pytest.mark.parametrize("split", ["", "a-b", "1a", "a/b", "_meta", "train "])
def test_names_of_splits(split):
    with pytest.raises(UsageError, match="a split's name must be letters, digits and underscores"):
        ShardName(split, 0, 1)


@pytest.mark.parametrize(("index", "count"), [(-1, 3), (3, 3), (0, 0)])
def test_index_and_count(index, count):
    with pytest.raises(ValueError, match=rf"shard index must be in \[0, {count}\), got {index}"):
        ShardName("train", index, count)


class TestOneOf:
    def test_valid(self):
        assert one_of("--task", "mlm", ("bert", "mlm")) == "mlm"

    def test_near(self):
        message = r"--task must be one of bert, mlm, got 'brt'; did you mean 'bert'\?"
        with pytest.raises(UsageError, match=message):
            one_of("--task", "brt", ("mlm", "bert"))

    def test_far(self):
        with pytest.raises(UsageError, match=r"--task must be one of bert, mlm, got 'x'$"):
            one_of("--task", "x", ("mlm", "bert"))

    def test_of_many(self):
        names = ["", *(f"class_{n:03}" for n in range(500)), "x" * 200]
        with pytest.raises(UsageError) as error:
            one_of("--label", "class_4000", names)
        assert str(error.value).startswith("--label must be one of '', class_000, class_001, ")
        hint = "class_018 and 482 more, got 'class_4000'; did you mean 'class_400'?"
        assert str(error.value).endswith(hint)


class TestTemplates:
    @pytest.mark.parametrize(
        ("naming", "extension", "path", "index"),
        [
            ("default", None, "train/train-00003-of-00080.tfrecords", "train/train-00003-of-00080"),
            ("default", "tfrecord", "train/train-00003-of-00080.tfrecord",
             "train/train-00003-of-00080"),
            ("flat", None, "train-00003-of-00080.tfrecord", "train-00003-of-00080"),
            ("flat", "tfrecords", "train-00003-of-00080.tfrecords", "train-00003-of-00080"),
            ("tfds", None, "cats-train.tfrecord-00003-of-00080", "cats-train-00003-of-00080"),
            ("seqio", None, "train.tfrecord-00003-of-00080", "train-00003-of-00080"),
        ],
    )  # fmt: skip
    def test_paths(self, naming, extension, path, index):
        template = shard_template(naming, extension, dataset="cats")
        name = ShardName("train", 3, 80, template)
        assert (name.path, name.index_path) == (path, f"_meta/index/{index}.idx")
        file_name = path.rpartition("/")[2]
        assert ShardName.parse(file_name, template) == name
        assert is_shard_file(file_name, "train", template)
        assert not is_shard_file(file_name, "trai", template)
        assert not is_shard_file(f"x{file_name}", "train", template)
        assert shard_folder("train", template) == path.rpartition("/")[0]

    def test_the_folder_alone_names_the_split(self):
        template = shard_template("tfx", dataset="cats")
        name = ShardName("train", 3, 80, template)
        assert name.path == "Split-train/data_tfrecord-00003-of-00080.gz"
        assert shard_folder("train", template) == "Split-train"
        assert is_shard_path(name.path, template)
        assert not is_shard_path("train/data_tfrecord-00003-of-00080.gz", template)
        assert not is_shard_path("Split-train/data_tfrecord-00080-of-00080.gz", template)
        with pytest.raises(ValueError, match="is not data_tfrecord-NNNNN-of-NNNNN"):
            ShardName.parse("data_tfrecord-00003-of-00080.gz", template)

    def test_both_parts_name_the_same_split(self):
        assert is_shard_path("train/train-00003-of-00080.tfrecords")
        assert not is_shard_path("train/test-00003-of-00080.tfrecords")
        assert not is_shard_path("sub/train/train-00003-of-00080.tfrecords")

    def test_a_dot_is_a_dot(self):
        assert not is_shard_file("train-00003-of-00080xtfrecords", "train")

    def test_the_extension_of_tfds_is_its_own(self):
        with pytest.raises(UsageError, match="--extension=tfrecord has no effect"):
            shard_template("tfds", "tfrecord", dataset="cats")

    def test_unknown(self):
        with pytest.raises(UsageError, match=r"--naming must be one of .*, got 'flats'; did you"):
            shard_template("flats", dataset="cats")
        with pytest.raises(UsageError, match=r"--extension must be one of .*, got 'tfr'"):
            shard_template("flat", "tfr", dataset="cats")
