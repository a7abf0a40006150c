"""Small inputs as the cookbook names them: a dump, JSON lines, a Hub dataset, pictures."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from ..transforms.subwords import trained

_PAGE = (
    "<page><title>{n}</title><ns>0</ns><id>{n}</id><revision><id>{n}</id><model>wikitext</model>"
    "<text>{text}</text></revision></page>"
)


def make_cookbook_inputs(folder: Path) -> None:
    """Writes them."""
    texts = _texts(folder)
    for name in ("wiki", "crawl", "llama", "hub/data", "coco/annotations", "severstal"):
        (folder / name).mkdir(parents=True)
    pages = "".join(_PAGE.format(n=n, text=text) for n, text in enumerate(texts))
    dump = f'<mediawiki version="0.11"><siteinfo></siteinfo>{pages}</mediawiki>'
    (folder / "wiki/pages-articles.xml.bz2").write_bytes(bz2.compress(dump.encode()))
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / "crawl/0.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    pq.write_table(pa.table({"content": texts}), folder / "hub/data/train-00000-of-00001.parquet")
    (folder / "llama/tokenizer.json").write_bytes(trained.byte_pairs(trained.LLAMA3))
    (folder / "spiece.model").write_bytes(trained.pieces("unigram"))
    _pictures(folder)


def _texts(folder: Path) -> list[str]:
    """Returns the documents of the corpus, each as one text."""
    path = min((folder / "corpus").iterdir())
    return [each.replace("\n", " ") for each in path.read_text("utf-8").split("\n\n") if each][:120]


def _pictures(folder: Path) -> None:
    for split, count in (("train", 6), ("val", 2)):
        for each in ("n01440764", "n01443537"):
            for number in range(count):
                picture(folder / f"imagenet/{split}/{each}/{each}_{number}.JPEG", number)
    content: dict[str, list[dict[str, object]]] = {
        "images": [], "annotations": [], "categories": [{"id": 18, "name": "dog"}],
    }  # fmt: skip
    rows = ["ImageId,ClassId,EncodedPixels"]
    for number in range(1, 21):
        name = f"{number:012d}.jpg"
        picture(folder / "coco/train2017" / name, number)
        picture(folder / "severstal/train_images" / name, number)
        content["images"].append({"id": number, "file_name": name, "width": 48, "height": 32})
        corners = [4, 4, 20, 4, 20, 18, 4, 18]
        content["annotations"].append(
            {"id": number, "image_id": number, "category_id": 18, "bbox": [4, 4, 16, 14],
             "area": 224, "iscrowd": 0, "segmentation": [corners]}
        )  # fmt: skip
        rows.append(f"{name},{number % 4 + 1},{number} 5 200 9")
    (folder / "coco/annotations/instances_train2017.json").write_text(json.dumps(content))
    (folder / "severstal/train.csv").write_text("\n".join(rows) + "\n")


def picture(path: Path, seed: int, *, form: str = "RGB") -> None:
    """Writes a small picture: a gradient whose colour depends on the seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.linear_gradient("L").resize((48, 32)).rotate(seed * 17)
    if form == "L":
        image = image.point(lambda value: int(value > 127))
    else:
        image = Image.merge("RGB", (image, image.rotate(90), Image.new("L", image.size, seed * 9)))
    image.save(path)
