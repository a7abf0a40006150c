from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from recordmill.records.errors import UsageError
from recordmill.transforms.images.listing.entries import Listing
from recordmill.transforms.images.references import ImageObject
from recordmill.transforms.sources.tables import read_rows

from ...sources.column_files import write as write_columns
from ..image_trees import fill, listed


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


class TestTablesAlone:
    def test_paths_are_relative_to_the_table(self, tmp_path: Path):
        fill(tmp_path, "x/a.jpg", "x/sub/b.jpg", "c.jpg")
        table = write(
            tmp_path / "x/t.csv",
            f"path,label\nsub/b.jpg,dog\n./a.jpg,cat\n../c.jpg,cow\n{tmp_path}/x/sub/../no.jpg,cat\n",
        )
        assert ("t.csv#3", "outside_input") in listed(table)[1]
        images, rejects = listed(table, allow_outside=(str(tmp_path),))
        outside = f"{tmp_path}/c.jpg"
        assert {n: i.labels for n, i in images.items()} == {
            "a.jpg": ("cat",), "sub/b.jpg": ("dog",), outside: ("cow",),
        }  # fmt: skip
        assert images["sub/b.jpg"].image.path == f"{tmp_path}/x/sub/b.jpg"
        assert images["sub/b.jpg"].image.size == 11
        assert rejects == [("t.csv#4", "no_image")]

    def test_what_is_used_is_told(self, tmp_path: Path):
        fill(tmp_path, "a.jpg")
        table = write(tmp_path / "t.csv", "path,label\na.jpg,cat\n")
        seen = []
        listed(table, listing=Listing(on_file=lambda path, size, _: seen.append((path, size))))
        assert seen == [(table, 21), (f"{tmp_path}/a.jpg", 5)]

    def test_remote_images_are_not_looked_at(self, tmp_path: Path):
        table = write(tmp_path / "t.csv", "path,label\nshelf://b/a.jpg,cat\n")
        [image] = listed(table, allow_outside=("shelf://b",))[0].values()
        assert (image.name, image.image.path, image.image.size) == (
            "shelf://b/a.jpg", "shelf://b/a.jpg", -1,
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("t.csv", '\ufeffid,filename,class\n\n1,"a.jpg",cat\n2,b.jpg,"d,g"\n'),
            ("t.tsv", "filename\tclass\tid\r\na.jpg\tcat\t1\r\nb.jpg\td,g\t2\r\n"),
            ("t.jsonl", '{"image":"a.jpg","label":"cat"}\n\n{"image":"b.jpg","label":"d,g"}\n'),
            ("t.csv.gz", 'path,label\na.jpg,cat\nb.jpg,"d,g"\n'),
        ],
    )
    def test_forms_and_usual_columns(self, tmp_path: Path, name: str, text: str):
        fill(tmp_path, "a.jpg", "b.jpg")
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        images, rejects = listed(f"{tmp_path}/{name}")
        assert {n: i.labels for n, i in images.items()} == {"a.jpg": ("cat",), "b.jpg": ("d,g",)}
        assert not rejects

    @pytest.mark.parametrize("form", ["parquet", "arrow", "stream", "avro"])
    def test_columns_with_paths(self, tmp_path: Path, form: str):
        fill(tmp_path, "a.jpg", "b.jpg", "c.jpg")
        rows = [
            {"image": {"bytes": b"", "path": path}, "label": label, "fold": fold, "year": 2000 + i}
            for i, (path, label, fold) in enumerate(
                [("a.jpg", "cat", "train"), ("b.jpg", "dog", "val"), ("no.jpg", "dog", "val"),
                 (None, "cat", "val"), ("c.jpg", None, "val")]
            )
        ]  # fmt: skip
        table = write_columns(form, tmp_path, rows, 2)
        images, rejects = listed(
            str(table), path_field="image.path", split_from="fold",
            keep_fields="year:int",
        )  # fmt: skip
        assert {name: (i.labels, i.split, i.fields) for name, i in images.items()} == {
            "a.jpg": (("cat",), "train", ("2000",)), "b.jpg": (("dog",), "validation", ("2001",)),
        }  # fmt: skip
        assert sorted(reason for _, reason in rejects) == ["bad_row", "no_image", "no_label"]

    def test_boxes_in_columns(self, tmp_path: Path):
        fill(tmp_path, "a.jpg")
        sides = {"xmin": 1, "ymin": 2.5, "xmax": 3, "ymax": 4}
        rows = [
            {"path": "a.jpg", "label": "cat", **sides},
            {"path": "a.jpg", "label": "dog", **sides},
        ]
        images, rejects = listed(str(write_columns("parquet", tmp_path, rows)))
        assert images["a.jpg"].objects == (
            ImageObject("cat", (1, 2.5, 3, 4)), ImageObject("dog", (1, 2.5, 3, 4)),
        )  # fmt: skip
        assert not rejects

    def test_broken_columns_are_one_line(self, tmp_path: Path):
        fill(tmp_path, "a.jpg")
        path = write_columns("parquet", tmp_path, [{"path": "a.jpg", "label": "cat"}])
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(UsageError, match="cannot be read: not a whole Parquet file: ") as error:
            listed(str(path))
        assert "\n" not in str(error.value)

    def test_columns_by_flag(self, tmp_path: Path):
        fill(tmp_path, "a.jpg", "b.jpg")
        table = write(
            tmp_path / "t.csv",
            "path,file,kind,fold,who\n,a.jpg,cat,Train,p1\n,b.jpg,dog,val,p1\n",
        )
        images, _ = listed(
            table, path_field="file", label_field="kind", split_from="fold", split_by="who"
        )
        found = {n: (i.labels, i.split, i.group) for n, i in images.items()}
        assert found == {
            "a.jpg": (("cat",), "train", "p1"), "b.jpg": (("dog",), "validation", "p1"),
        }  # fmt: skip

    def test_several_labels(self, tmp_path: Path):
        fill(tmp_path, "a.jpg", "b.jpg", "c.jpg")
        table = write(tmp_path / "t.csv", "path,label\na.jpg,x; y;x\nb.jpg,z\nc.jpg,\n")
        images, rejects = listed(table)
        assert images["a.jpg"].labels == ("x; y;x",)
        assert rejects == [("c.jpg", "no_label")]
        images, _ = listed(table, label_delimiter=";")
        assert [i.labels for i in images.values()] == [("x", "y"), ("z",), ()]
        lines = [{"path": "a.jpg", "label": ["x", 3]}, {"path": "b.jpg", "label": 7}]
        table = write(tmp_path / "t.jsonl", "\n".join(map(json.dumps, lines)))
        images, _ = listed(table)
        assert [i.labels for i in images.values()] == [("x", "3"), ("7",)]

    def test_rejects_say_which_row(self, tmp_path: Path):
        fill(tmp_path, "a.jpg", "b.jpg")
        path = tmp_path / "t.csv"
        path.write_bytes(b"path,label,fold\na.jpg,cat,\nb.jpg\n,cat,x\nb.jpg,\xff,x\na.jpg,dog,x\n")
        images, rejects = listed(str(path))
        assert list(images) == ["a.jpg"]
        assert images["a.jpg"].labels == ("cat",)
        assert sorted(rejects) == [
            ("t.csv#2", "bad_row"), ("t.csv#3", "bad_row"), ("t.csv#4", "bad_row"),
            ("t.csv#5", "duplicate"),
        ]  # fmt: skip
        _, rejects = listed(str(path), split_from="fold")
        assert ("a.jpg", "no_split") in rejects
        lines = '{"path":"a.jpg","label":{"x":1}}\nnothing\n[1]\n{"label":"cat"}\n'
        _, rejects = listed(write(tmp_path / "t.jsonl", lines))
        assert sorted(rejects) == [
            ("a.jpg", "bad_row"), *((f"t.jsonl#{row}", "bad_row") for row in (2, 3, 4))
        ]  # fmt: skip

    def test_rows_with_boxes_are_objects(self, tmp_path: Path):
        fill(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg")
        table = write(
            tmp_path / "t.csv",
            "filename,class,xmin,ymin,xmax,ymax\na.jpg,cat,1,2,3,4\nb.jpg,,,,,\na.jpg,dog,5,6,7,8.5\n"
            "c.jpg,dog,5,6,7,8\nc.jpg,dog,5,x,7,8\nd.jpg,dog,0,0,nan,1\ne.jpg,,1,2,3,4\n",
        )
        images, rejects = listed(table)
        assert rejects == [(name, "bad_row") for name in ("c.jpg", "d.jpg", "e.jpg")]
        assert images["a.jpg"].objects == (
            ImageObject("cat", (1, 2, 3, 4)), ImageObject("dog", (5, 6, 7, 8.5)),
        )  # fmt: skip
        assert images["a.jpg"].labels == ("cat", "dog")
        assert images["b.jpg"].objects == ()

    def test_boxes_of_an_image_are_in_one_split(self, tmp_path: Path):
        fill(tmp_path, "a.jpg", "b.jpg")
        rows = [f"{name},cat,1,2,3,{4 + i},{fold}" for i, (name, fold) in enumerate(
            [("a.jpg", "val"), ("a.jpg", "val"), ("b.jpg", "val"), ("b.jpg", "x")])]  # fmt: skip
        header = "filename,class,xmin,ymin,xmax,ymax,fold"
        table = write(tmp_path / "t.csv", "\n".join([header, *rows]))
        images, rejects = listed(table, split_from="fold")
        assert [image.split for image in images.values()] == ["validation"]
        assert rejects == [("b.jpg", "bad_row")]


class TestTablesOfListedImages:
    @pytest.mark.parametrize("place", ["images/t.csv", "t.csv", "meta/t.csv"])
    @pytest.mark.parametrize("base", ["images", "table", ""])
    def test_paths_are_found_from_either_folder(self, tmp_path: Path, place: str, base: str):
        fill(tmp_path, "images/a.jpg", "images/x/b.jpg", "images/no.txt")
        folder = {
            "images": "", "table": "../" * place.count("/") + "images/", "": f"{tmp_path}/images/",
        }[base]  # fmt: skip
        table = write(tmp_path / place, f"path,label\n{folder}a.jpg,cat\n{folder}x/b.jpg,dog\n")
        images, rejects = listed(f"{tmp_path}/images/**", annotations=(table,))
        assert {n: i.labels for n, i in images.items()} == {"a.jpg": ("cat",), "x/b.jpg": ("dog",)}
        assert not rejects

    def test_what_only_one_side_has_is_rejected(self, tmp_path: Path):
        fill(tmp_path, "in/a.jpg", "in/b.jpg")
        table = write(tmp_path / "t.csv", "path,label\nb.jpg,dog\nc.jpg,cat\n")
        images, rejects = listed(f"{tmp_path}/in", annotations=(table,))
        assert list(images) == ["b.jpg"]
        assert rejects == [("a.jpg", "no_label"), ("t.csv#2", "no_image")]

    def test_what_a_glob_leaves_out_is_counted(self, tmp_path: Path):
        fill(tmp_path, "in/a.jpg", "in/b.jpg")
        table = write(tmp_path / "t.csv", "path,label\na.jpg,dog\nb.jpg,cat\nc.jpg,cat\n")
        listing = Listing()
        images, rejects = listed(f"{tmp_path}/in/a*", annotations=(table,), listing=listing)
        assert list(images) == ["a.jpg"]
        assert rejects == [("t.csv#3", "no_image")]
        assert listing.filtered == {"not_in_input": 1}


def test_errors(tmp_path: Path):
    fill(tmp_path, "a.jpg")
    table = write(tmp_path / "t.csv", "path,kind\na.jpg,cat\n")
    cases = [
        ({}, r"--label_field must name the column of .*/t\.csv with the labels: path, kind; or"),
        ({"label_field": "x"}, r"--label_field must be a column of .*: path, kind; got 'x'"),
        ({"path_field": "x"}, r"--path_field must be a column of"),
        ({"split_from": "x"}, r"--split_from must be a column of"),
        ({"split_by": "x"}, r"--split_by must be a column of"),
    ]
    for options, message in cases:
        with pytest.raises(UsageError, match=f"^{message}"):
            listed(table, **options)
    assert listed(table, labels_from="none")[0]["a.jpg"].labels == ()
    with pytest.raises(UsageError, match="--path_field must name the column"):
        listed(write(tmp_path / "u.csv", "x,label\na.jpg,cat\n"))
    with pytest.raises(UsageError, match="must begin with a line of column names; it is empty"):
        listed(write(tmp_path / "v.csv", "\n"))
    with pytest.raises(UsageError, match="has no rows that can be read"):
        listed(write(tmp_path / "v.jsonl", "x\n"))
    with pytest.raises(UsageError, match=r"--annotations .*/no\.csv cannot be read: No such file"):
        listed(str(tmp_path), annotations=(f"{tmp_path}/no.csv",))
    (tmp_path / "w.csv.gz").write_bytes(gzip.compress(b"path,label\n" * 99)[:-9])
    with pytest.raises(UsageError, match="cannot be read: EOFError: Compressed file ended"):
        list(read_rows(f"{tmp_path}/w.csv.gz"))
