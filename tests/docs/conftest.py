"""A folder with all that the blocks of the documentation name: inputs, a vocabulary, datasets."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi

from ..bigquery import serve_bigquery
from ..databases import postgresql_server, sqlite_database

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "docs" / "generate"), str(Path(__file__).parent)]

from ..transforms.examples.record_files import example, write_records  # noqa: E402
from .cookbook_inputs import make_cookbook_inputs, picture  # noqa: E402

CLASSES = ("cat", "dog")
_VOC = """<annotation><filename>{name}.jpg</filename><size><width>48</width><height>32</height>
<depth>3</depth></size><object><name>cat</name><bndbox><xmin>4</xmin><ymin>4</ymin><xmax>30</xmax>
<ymax>20</ymax></bndbox></object></annotation>"""


def _save_dataset(folder: Path, texts: list[str]) -> None:
    """Writes what `save_to_disk` of Hugging Face's datasets writes of two splits."""
    for split in ("train", "validation"):
        (folder / split).mkdir(parents=True)
        table = pa.table({"text": texts})
        name = "data-00000-of-00001.arrow"
        with pa.ipc.new_stream(folder / split / name, table.schema) as writer:
            writer.write_table(table)
        (folder / split / "state.json").write_text(
            json.dumps({"_data_files": [{"filename": name}]})
        )
    (folder / "dataset_dict.json").write_text('{"splits": ["train", "validation"]}')


def make_inputs(folder: Path, corpus: Path, vocab_file: str) -> None:
    """Makes the corpus, the vocabulary and the images that the documentation names."""
    for name in ("corpus", "books"):
        shutil.copytree(corpus, folder / name)
        for path in sorted((folder / name).iterdir())[1:]:
            path.unlink()
    for name in ("wiki.txt", "books.txt"):
        shutil.copy(min(corpus.iterdir()), folder / name)
    shutil.copy(vocab_file, folder / "vocab.txt")
    rows = [
        f"{number},{('good', 'bad')[number % 2]},answer {number} was all they had said,so it was"
        for number in range(200)
    ]
    for name in ("reviews.csv", "pairs.csv"):
        (folder / name).write_text("\n".join(["id,label,text,hypothesis", *rows]) + "\n")
    _save_dataset(folder / "saved_dataset", rows)
    (folder / "shards").mkdir()
    with tarfile.open(folder / "shards/00000.tar", "w") as archive:
        for number, row in enumerate(rows):
            for extension, content in (("txt", row), ("json", '{"lang": "en"}')):
                member = tarfile.TarInfo(f"{number:04}.{extension}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content.encode()))
    database = sqlite_database(folder / "docs.db")
    database.execute("CREATE TABLE docs (id INTEGER PRIMARY KEY, text TEXT)")
    database.execute("INSERT INTO docs VALUES (?, ?)", list(enumerate(rows)))
    for number in range(6):
        for seed, name in enumerate(CLASSES):
            picture(folder / "photos" / name / f"{number}.jpg", 2 * number + seed)
        picture(folder / "VOC2012/JPEGImages" / f"{number}.jpg", number)
        (folder / "VOC2012/Annotations").mkdir(exist_ok=True)
        (folder / f"VOC2012/Annotations/{number}.xml").write_text(_VOC.format(name=number))
        picture(folder / "data/images" / f"{number}.jpg", number)
        picture(folder / "data/masks" / f"{number}.png", number, form="L")
    for name, compression in (("old/a.tfrecord.gz", "GZIP"), ("more/b.tfrecord", "")):
        records = [example(id=number, text=f"record {number}") for number in range(90)]
        write_records(folder / name, records, compression)
    lists = folder / "VOC2012/ImageSets/Main"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("".join(f"{number}\n" for number in range(6)))


def write_files_of_guides(folder: Path) -> None:
    """Writes the blocks of Python that begin with a file's name, as `# cleaning.py`."""
    for page in sorted((ROOT / "docs/guides").glob("*.md")):
        for code in re.findall(r"^```python\n(# \w+\.py\n.*?)^```$", page.read_text(), _LINES):
            (folder / code.split()[1]).write_text(code)


_LINES = re.MULTILINE | re.DOTALL
DATASETS = {
    "ds": "text --input=corpus/*.txt --output=ds --vocab_file=vocab.txt --task=bert "
    "--max_seq_length=64 --dupe_factor=2 --splits=train:0.8,validation:0.2 --num_shards=2",
    "tokens": "text --input=corpus/*.txt --output=tokens --vocab_file=vocab.txt --task=mlm_tokens "
    "--max_seq_length=64 --num_shards=2",
    "reviews": "text --input=reviews.csv --output=reviews --vocab_file=vocab.txt --task=classify "
    "--max_seq_length=32 --num_shards=1",
    "images": "images --input=photos --output=images --image_size=32x32 --statistics=sample "
    "--num_shards=2 --copies=8 --augmentations=flip",
}  # fmt: skip


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory, corpus: Path, vocab_file: str) -> Path:
    """A folder with inputs and datasets, written once and copied for each block."""
    from recordmill.pipelines.command_line import main

    folder = tmp_path_factory.mktemp("prepared")
    make_inputs(folder, corpus, vocab_file)
    make_cookbook_inputs(folder)
    write_files_of_guides(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in DATASETS.values():
            assert main([*command.split(), "--direct_num_workers=1"]) == 0
    shutil.copytree(folder / "ds", folder / "ds2")
    return folder


_ROWS = [(number, f"they had {number} of it. so it was") for number in range(200)]


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with the database `corpus`, as libpq's variables name it."""
    with postgresql_server(tmp_path_factory.mktemp("server")) as served:
        served.execute("CREATE DATABASE corpus")
        url = urlsplit(served.url)
        (host,) = parse_qs(url.query)["host"]
        with dbapi.connect(f"postgresql://postgres@/corpus?{url.query}") as connection:
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE pages (id BIGINT PRIMARY KEY, body TEXT)")
                cursor.executemany("INSERT INTO pages VALUES ($1, $2)", _ROWS)
            connection.commit()
        yield {"PGHOST": host, "PGUSER": "postgres"}


@pytest.fixture
def bigquery() -> Iterator[None]:
    """Servers that have the table and the answer that the documentation names."""
    table = pa.table({"id": [i for i, _ in _ROWS], "text": [text for _, text in _ROWS]})
    with serve_bigquery() as served:
        served.put("my-project.corpus.pages", table)
        served.put("my-project.corpus.answer", table)
        served.answers["*"] = "projects/my-project/datasets/corpus/tables/answer"
        yield


@pytest.fixture
def workplace(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the prepared folder, which is the current one."""
    folder = tmp_path / "workplace"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")  # tensorflow_transform sets it for all that come
    return folder
