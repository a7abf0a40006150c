"""Trees of pictures drawn by code, as people have them: COCO, pairs of image and mask."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from ..pictures import drawn, encoded

SIZE = (64, 96)  # height, width
COUNT = 9
CATEGORIES = {3: "disc", 7: "square", 90: "rod"}
# xmin, ymin, xmax, ymax and the category of each object; image i has the first i % 4.
OBJECTS = [((10, 8, 34, 30), 7), ((40, 20, 75, 55), 3), ((2, 40, 30, 60), 90)]


def objects_of(number: int) -> list[tuple[tuple[int, int, int, int], int]]:
    return OBJECTS[: number % 4]


def image_id(number: int) -> int:
    """Returns COCO's number of an image: ids have gaps there."""
    return 1000 + 37 * number


def draw_coco(folder: Path) -> None:
    """Writes images/*.jpg and instances.json; every object has a polygon, some images none."""
    (folder / "images").mkdir()
    images, notes = [], []
    for number in range(COUNT):
        name = f"{image_id(number):012d}.jpg"
        picture = drawn(SIZE[1], SIZE[0], seed=number)
        (folder / "images" / name).write_bytes(encoded(picture, "JPEG", quality=95))
        size = {"width": SIZE[1], "height": SIZE[0]}
        images.append({"id": image_id(number), "file_name": name, **size})
        for (x0, y0, x1, y1), category in objects_of(number):
            notes.append(
                {
                    "id": len(notes) + 1, "image_id": image_id(number), "category_id": category,
                    "bbox": [x0, y0, x1 - x0, y1 - y0], "area": (x1 - x0) * (y1 - y0),
                    "iscrowd": 0, "segmentation": [[x0, y0, x1, y0, x1, y1, x0, y1]],
                }
            )  # fmt: skip
    categories = [{"id": number, "name": name} for number, name in CATEGORIES.items()]
    content = {"images": images, "annotations": notes, "categories": categories}
    (folder / "instances.json").write_text(json.dumps(content))


def mask_of(number: int) -> np.ndarray:
    """Returns `[height, width] uint8`: class 1 and 2, and 255 on a line between."""
    mask = Image.new("L", SIZE[::-1])
    draw = ImageDraw.Draw(mask)
    draw.rectangle((5, 5, 30 + number, 40), fill=1)
    draw.rectangle((50, 10 + number, 90, 60), fill=2)
    draw.line((0, 63, 95, 63), fill=255)
    return np.asarray(mask)


def draw_pairs(folder: Path) -> None:
    """Writes images/*.jpg, masks/*.png of the same names, and labels.txt."""
    for kind in ("images", "masks"):
        (folder / kind).mkdir()
    for number in range(COUNT):
        picture = encoded(drawn(SIZE[1], SIZE[0], seed=number), "JPEG", quality=95)
        (folder / f"images/{number:03d}.jpg").write_bytes(picture)
        Image.fromarray(mask_of(number)).save(folder / f"masks/{number:03d}.png")
    (folder / "labels.txt").write_text("square\ndisc\n")


def draw_classes(folder: Path) -> None:
    """Writes cat/*.jpg, dog/*.jpg and newt/*.jpg."""
    for number in range(COUNT):
        name = ("cat", "dog", "newt")[number % 3]
        (folder / name).mkdir(exist_ok=True)
        picture = encoded(drawn(SIZE[1], SIZE[0], seed=number), "JPEG", quality=95)
        (folder / name / f"{number}.jpg").write_bytes(picture)
