"""A small set of pictures drawn by code in the layout of DAGM 2007, and a sheet of decoded records.

Grey surfaces of two textures; some have a defect, which a mask shows. Used by `make demo`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIDE = 128


def _texture(kind: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    if kind == 1:
        waves = np.sin(x / rng.uniform(3, 5) + rng.uniform(0, 6)) * np.cos(y / rng.uniform(6, 9))
    else:
        waves = np.sin((x + y) / rng.uniform(4, 6)) + np.sin((x - 2 * y) / rng.uniform(7, 9))
    return 128 + 25 * waves + rng.normal(0, 8, (SIDE, SIDE))


def _defect(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    across, down = rng.uniform(30, SIDE - 30, 2)
    turn = rng.uniform(0, np.pi)
    u = (x - across) * np.cos(turn) + (y - down) * np.sin(turn)
    v = (y - down) * np.cos(turn) - (x - across) * np.sin(turn)
    return (u / rng.uniform(12, 22)) ** 2 + (v / rng.uniform(4, 8)) ** 2 < 1


def draw(folder: Path, train: int = 24, test: int = 8) -> None:
    """Writes Class1 and Class2 with Train and Test, masks and Labels.txt; every third is whole."""
    for kind in (1, 2):
        for split, count in (("Train", train), ("Test", test)):
            target = folder / f"Class{kind}" / split
            (target / "Label").mkdir(parents=True, exist_ok=True)
            rows = ["1\t0\t0\t0\t0"]  # DAGM's first line belongs to no image
            for number in range(1, count + 1):
                rng = np.random.default_rng([kind, len(split), number])
                pixels, mask = _texture(kind, rng), _defect(rng)
                name, mask_name = f"{number:04d}.PNG", "0"
                if number % 3:
                    mask_name = f"{number:04d}_label.PNG"
                    pixels = np.where(mask, pixels * 0.55, pixels)
                    shown = Image.fromarray((mask * 255).astype(np.uint8))
                    shown.save(target / "Label" / mask_name)
                grey = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
                grey.save(target / name)
                rows.append(f"{number}\t{int(number % 3 > 0)}\t{name}\t0\t{mask_name}")
            (target / "Label" / "Labels.txt").write_text("\n".join(rows) + "\n")


def contact_sheet(images: Any, masks: Any, path: Path, columns: int = 6) -> None:
    """Writes decoded images, with what their masks mark in red, side by side.

    Args:
      images: `[num_images, height, width, channels] uint8`.
      masks: `[num_images, height, width, 1] uint8`, 0 where nothing is marked.
      path: of the PNG.
      columns: images in a row.
    """
    images = np.repeat(images, 3, axis=-1) if images.shape[-1] == 1 else np.asarray(images)
    marked = np.asarray(masks) > 0
    tinted = np.where(marked, images // 2 + np.array([127, 0, 0], np.uint8), images)
    count, height, width, _ = tinted.shape
    rows = -(-count // columns)
    sheet = np.full((rows * (height + 4), columns * (width + 4), 3), 255, np.uint8)
    for i, tile in enumerate(tinted):
        top, left = i // columns * (height + 4) + 2, i % columns * (width + 4) + 2
        sheet[top : top + height, left : left + width] = tile
    Image.fromarray(sheet).save(path)
