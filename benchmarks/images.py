"""The image job beside what else there is, in one run, on the same images; ratios are what counts.

    python benchmarks/images.py [--images=GLOB] [--count=20000] [--scale=1] [--parts=…]

Parts: bare (a Pillow loop of decode, resize to 224, flip, JPEG on every core, nothing else), job
(`recordmill images` doing the same), pool (4 processes and tf.io.TFRecordWriter), tfds (TFDS's Beam
build on every core, the same work), copy (bytes passed through: the job,
with and without its check, and TFDS), memory (100,000 small images, 200 of 50 megapixels).
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from glob import glob
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import numpy as np
from PIL import Image, ImageOps

from recordmill.pipelines.cores import usable_cores
from recordmill.pipelines.progress import resident_bytes

CORES = usable_cores()
SIDE = 224


def show(name: str, value: float, unit: str, **more: object) -> None:
    extra = "  ".join(f"{key} {item}" for key, item in more.items())
    print(f"{name:<58} {value:>10,.1f} {unit:<12} {extra}", flush=True)


def make_images(folder: Path, images: list[str], count: int, scale: int = 1) -> list[str]:
    """Photos under new names in two class folders; drawn ones where none are given."""
    made = [folder / ("a", "b")[i % 2] / f"{i:06d}.jpg" for i in range(count)]
    if not images:
        seeds = folder.parent / "seeds"
        seeds.mkdir(parents=True, exist_ok=True)
        images = [str(seeds / f"{i}.jpg") for i in range(100)]
        for i, path in enumerate(images):
            noise = np.random.default_rng(i).integers(0, 255, (48, 64, 3), np.uint8)
            Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC).save(path)
    if scale > 1:
        seeds = folder.parent / f"seeds-{scale}"
        seeds.mkdir(parents=True, exist_ok=True)
        for i, path in enumerate(images):
            with Image.open(path) as photo:
                size = photo.width * scale, photo.height * scale
                photo.convert("RGB").resize(size).save(seeds / f"{i}.jpg", quality=90)
        images = [str(seeds / f"{i}.jpg") for i in range(len(images))]
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


def transform(path: str, flip: bool) -> bytes:
    """What everybody here does to an image."""
    with Image.open(path) as stored:
        image = stored.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    if flip:
        image = ImageOps.mirror(image)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=95)
    return out.getvalue()


def bare_loop(paths: list[str], output: str) -> None:
    with open(output, "wb") as handle:
        for i, path in enumerate(paths):
            handle.write(transform(path, bool(i % 2)))


def bare(paths: list[str], scratch: Path) -> float:
    context = multiprocessing.get_context("fork")
    began = time.perf_counter()
    processes = [
        context.Process(target=bare_loop, args=(paths[i::CORES], str(scratch / f"bare-{i}")))
        for i in range(CORES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    seconds = time.perf_counter() - began
    for path in scratch.glob("bare-*"):
        path.unlink()
    return len(paths) / seconds


def pool_writer(task: tuple[int, list[str], str]) -> None:
    """The remedy that people write: a process pool and TFRecordWriter."""
    import tensorflow as tf

    number, paths, output = task
    with tf.io.TFRecordWriter(f"{output}/pool-{number:05d}.tfrecord") as writer:
        for i, path in enumerate(paths):
            image = tf.train.BytesList(value=[transform(path, bool(i % 2))])
            label = tf.train.Int64List(value=[int("/b/" in path)])
            features = {
                "image": tf.train.Feature(bytes_list=image),
                "label": tf.train.Feature(int64_list=label),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


def pool(paths: list[str], scratch: Path) -> float:
    began = time.perf_counter()
    tasks = [(i, paths[i::16], str(scratch)) for i in range(16)]
    with multiprocessing.get_context("spawn").Pool(4) as workers:
        workers.map(pool_writer, tasks, chunksize=1)
    seconds = time.perf_counter() - began
    for path in scratch.glob("pool-*"):
        path.unlink()
    return len(paths) / seconds


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


TFDS = """
import logging
import apache_beam as beam
import tensorflow_datasets as tfds
from images import transform

class Photos(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")
    def _info(self):
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict({{
            "image": tfds.features.Image(), "label": tfds.features.ClassLabel(num_classes=2)}}))
    def _split_generators(self, dl_manager):
        return {{"train": self._generate_examples()}}
    def _generate_examples(self):
        paths = open({listing!r}).read().split()
        def make(item):
            i, path = item
            data = open(path, "rb").read() if {copy!r} else transform(path, bool(i % 2))
            import io
            return path, {{"image": io.BytesIO(data), "label": int("/b/" in path)}}
        return beam.Create(list(enumerate(paths))) | beam.Map(make)

if __name__ == "__main__":
    from apache_beam.options.pipeline_options import PipelineOptions
    logging.disable(logging.WARNING)
    options = PipelineOptions(
        runner="FnApiRunner", direct_num_workers={cores}, direct_running_mode="multi_processing")
    Photos(data_dir={out!r}).download_and_prepare(
        download_config=tfds.download.DownloadConfig(beam_runner=None, beam_options=options))
"""


def tfds(paths: list[str], scratch: Path, *, copy: bool) -> float:
    listing, program = scratch / "listing.txt", scratch / "tfds_build.py"
    listing.write_text("\n".join(paths))
    out = scratch / "tfds"
    shutil.rmtree(out, ignore_errors=True)
    text = TFDS.format(listing=str(listing), copy=copy, out=str(out), cores=CORES)
    program.write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}  # its workers' too
    began = time.perf_counter()
    shown = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, env=environment
    )
    seconds = time.perf_counter() - began
    if shown.returncode or not list(out.rglob("dataset_info.json")):
        sys.exit(shown.stderr[-3000:])
    shutil.rmtree(out)
    return len(paths) / seconds


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
    parser.add_argument("--images", help="a glob of real photos; drawn ones by default")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--scale", type=int, default=1, help="Enlarges photos, as of a camera.")
    parser.add_argument("--scratch", default="build/benchmark-images")
    parser.add_argument("--parts", default="bare,job,pool,tfds,copy")
    options = parser.parse_args()
    scratch = Path(options.scratch).resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    parts = options.parts.split(",")
    photos = sorted(glob(options.images)) if options.images else []
    folder = scratch / f"photos-{options.scale}"
    paths = make_images(folder, photos, options.count, options.scale)
    total = sum(os.path.getsize(path) for path in paths)
    print(f"{len(paths):,} images, {total / 1e6:,.0f} MB, {CORES} cores\n")
    figures: dict[str, float] = {}
    same = ("--image_size=224x224", "--augmentations=flip", "--encoding=JPEG")
    if "bare" in parts:
        figures["bare"] = bare(paths, scratch)
        show(f"bare Pillow loop on {CORES} cores", figures["bare"], "images/s")
    if "job" in parts:
        seconds, peak = job(str(folder), scratch, *same)
        figures["job"] = len(paths) / seconds
        show("recordmill images, start included", figures["job"], "images/s", peak_MB=peak // 10**6)
        seconds, peak = job(str(folder), scratch, *same, "--reducing_gap=1")
        figures["job, gap 1"] = len(paths) / seconds
        show("the same, --reducing_gap=1", figures["job, gap 1"], "images/s")
    if "pool" in parts:
        figures["pool"] = pool(paths, scratch)
        show("4 processes and TFRecordWriter", figures["pool"], "images/s")
    if "tfds" in parts:
        figures["tfds"] = tfds(paths, scratch, copy=False)
        show("TFDS's Beam build, start included", figures["tfds"], "images/s")
    if "copy" in parts:
        for name, flags in (("copy, checked", ()), ("copy", ("--no_check",))):
            seconds, peak = job(str(folder), scratch, *flags)
            figures[name] = len(paths) / seconds
            show(f"recordmill images, {name}", figures[name], "images/s", peak_MB=peak // 10**6)
        figures["tfds copy"] = tfds(paths, scratch, copy=True)
        show("TFDS's Beam build, copy, start included", figures["tfds copy"], "images/s")
    for ours, theirs in (
        ("job", "bare"), ("job", "pool"), ("job", "tfds"), ("job, gap 1", "tfds"),
        ("copy, checked", "tfds copy"), ("copy", "tfds copy"),
    ):  # fmt: skip
        if ours in figures and theirs in figures:
            print(f"{ours} / {theirs}: {figures[ours] / figures[theirs]:.2f}")
    if "memory" in parts:
        memory(scratch)
    print(json.dumps({name: round(value, 2) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
