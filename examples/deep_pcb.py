"""A format of one's own for `recordmill images --map`: DeepPCB's boxes, in text files by image.

    export DEEP_PCB=PCBData
    printf 'open\nshort\nmousebite\nspur\ncopper\npin-hole\n' > defects.txt
    recordmill images --input=PCBData --output=ds --task=detection --layout=flat \
        --labels=defects.txt --map=deep_pcb.py:add_boxes

DeepPCB (https://github.com/tangsanli5201/DeepPCB) has beside each image of a board,
`group00041/00041/00041000_test.jpg`, one of the faultless board, `…_temp.jpg`, and the defects in
`group00041/00041_not/00041000.txt`: a line `x1 y1 x2 y2 type` each.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from recordmill.transforms import Box, Image

DEFECTS = ("open", "short", "mousebite", "spur", "copper", "pin-hole")  # types 1 to 6


def add_boxes(image: Image) -> Image | None:
    """Returns the image of a board with its defects; drops the images of faultless boards."""
    name = image.key or ""
    if not name.endswith("_test.jpg"):
        return None
    folder, _, stem = name.removesuffix("_test.jpg").rpartition("/")
    text = (Path(os.environ["DEEP_PCB"]) / f"{folder}_not" / f"{stem}.txt").read_text()
    boxes = []
    for line in text.replace(",", " ").splitlines():
        xmin, ymin, xmax, ymax, kind = map(int, line.split())
        boxes.append(Box(DEFECTS[kind - 1], xmin, ymin, xmax, ymax))
    return replace(image, boxes=tuple(boxes))
