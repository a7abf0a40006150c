"""The memory of the image job: 100,000 small images, and 200 of 50 megapixels.

    python benchmarks/images.py

Its speed beside others is in the table of `python benchmarks`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
from PIL import Image

from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.progress import resident_bytes

CORES = usable_cores()


def show(name: str, value: float, unit: str, **more: object) -> None:
    extra = "  ".join(f"{key} {item}" for key, item in more.items())
    print(f"{name:<58} {value:>10,.1f} {unit:<12} {extra}", flush=True)


def make_images(folder: Path, images: list[str], count: int) -> list[str]:
    """Photos under new names in two class folders; drawn ones where none are given."""
    made = [folder / ("a", "b")[i % 2] / f"{i:06d}.jpg" for i in range(count)]
    if not images:
        seeds = folder.parent / "seeds"
        seeds.mkdir(parents=True, exist_ok=True)
        images = [str(seeds / f"{i}.jpg") for i in range(100)]
        for i, path in enumerate(images):
            noise = np.random.default_rng(i).integers(0, 255, (48, 64, 3), np.uint8)
            Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC).save(path)
    for i, path in enumerate(made):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            # Linked where that can be (a file system allows a file so many names): what is
            # measured is not the disk.
            source = made[i - len(images)] if i >= len(images) else images[i]
            try:
                os.link(source, path)
            except OSError:
                shutil.copyfile(source, path)
    return [str(path) for path in made]


def job(folder: str, scratch: Path, *flags: str) -> tuple[float, float]:
    """Returns seconds, start included, and the peak bytes of all processes together."""
    output = scratch / "dataset"
    shutil.rmtree(output, ignore_errors=True)
    began = time.perf_counter()
    process = subprocess.Popen(
        [
            sys.executable, "-m", "recordmill.pipelines.images", f"--input={folder}",
            f"--output={output}", *flags,
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    peak = 0
    while process.poll() is None:
        peak = max(peak, resident_bytes(process.pid) or 0)
        time.sleep(0.05)
    seconds = time.perf_counter() - began
    text = process.communicate()[0]
    if process.returncode:
        sys.exit(text)
    shutil.rmtree(output)
    return seconds, peak


def memory(scratch: Path) -> None:
    for name, count, side in (("small", 100_000, (32, 32)), ("large", 200, (8164, 6124))):
        noise = np.random.default_rng(0).integers(0, 255, (16, 16, 3), np.uint8)
        seed = scratch / f"{name}.jpg"
        Image.fromarray(noise).resize(side, Image.Resampling.BICUBIC).save(seed)
        make_images(scratch / name, [str(seed)], count)
        size = "--image_size=224x224" if name == "large" else "--image_size=28x28"
        flags = (size, "--augmentations=flip", f"--direct_num_workers={CORES}", "--shard_size=20MB")
        seconds, peak = job(str(scratch / name), scratch, *flags)
        show(f"peak memory, {count:,} images of {side[0]} x {side[1]}", peak / 1e6, "MB",
             speed=f"{count / seconds:.1f} images/s")  # fmt: skip
        shutil.rmtree(scratch / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scratch", default="build/benchmark-images")
    options = parser.parse_args()
    scratch = Path(options.scratch).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    memory(scratch)


if __name__ == "__main__":
    main()
