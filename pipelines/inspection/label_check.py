"""Images that look more like another class than like their own.

A ridge regression from small pictures to classes is fitted to four fifths of the images and asked
about the rest. Where it agrees with most labels, those that it contradicts with confidence may be
wrong, as in confident learning (Northcutt et al. 2021, arXiv:1911.00068). Where it does not, it
only orders the images: what it says of labels is then no evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

_FOLDS = 5
_SHRINKAGE = 3e-3
_SIDE, _CELLS, _ANGLES = 32, 4, 8
LEAST_AGREEMENT = 0.75
LEAST_IMAGES = 30


@dataclass(frozen=True, slots=True)
class LabelCheck:
    """What a simple classifier says of labels.

    Attributes:
      agreement: the share of labels that it gives too.
      chance: the share of the most frequent label.
      doubtful: (image, the label that it looks like), the least fitting first.
      contradicted: how many of these it contradicts with confidence.
    """

    agreement: float
    chance: float
    doubtful: Sequence[tuple[int, int]]
    contradicted: int

    @property
    def tells(self) -> bool:
        """Whether its word against a label means something."""
        return self.agreement >= max(LEAST_AGREEMENT, (1 + self.chance) / 2)


def image_features(image: Image.Image) -> npt.NDArray[np.float32]:
    """Returns what an image looks like: colours of 4 x 4 cells, their edges by direction, and
    histograms of its colours; `[200] float32`."""
    pixels = np.asarray(image.resize((_SIDE, _SIDE), Image.Resampling.BOX), np.float32) / 255
    cells = pixels.reshape(_CELLS, _SIDE // _CELLS, _CELLS, _SIDE // _CELLS, 3)
    rise, across = np.gradient(pixels.mean(2))
    angle = (np.arctan2(rise, across) % np.pi / np.pi * _ANGLES).astype(int) % _ANGLES
    place = np.arange(_SIDE) * _CELLS // _SIDE
    bins = (place[:, None] * _CELLS + place) * _ANGLES + angle
    edges = np.bincount(bins.ravel(), np.hypot(rise, across).ravel(), _CELLS**2 * _ANGLES)
    colors = [np.histogram(pixels[..., c], 8, (0, 1))[0] / _SIDE**2 for c in range(3)]
    parts = [cells.mean((1, 3)).ravel(), edges / 8, np.concatenate(colors)]
    return np.concatenate(parts).astype(np.float32)


def check_labels(features: npt.NDArray[np.float32], labels: Sequence[int]) -> LabelCheck | None:
    """Returns what a simple classifier says of labels; None of fewer than 30 images or one class.

    Args:
      features: `[num_images, num_features]`.
      labels: the class of each image.
    """
    classes, given = np.unique(labels, return_inverse=True)
    if len(given) < LEAST_IMAGES or len(classes) < 2:
        return None
    scores = _scores(features.astype(np.float64), given, len(classes))
    of_label = scores[np.arange(len(given)), given]
    best = scores.argmax(axis=1)
    usual = np.array([of_label[given == c].mean() for c in range(len(classes))])
    margin = scores.max(axis=1) - of_label
    order = [int(i) for i in np.argsort(-margin, kind="stable") if best[i] != given[i]]
    sure = (best != given) & (scores.max(axis=1) >= usual[best])
    return LabelCheck(
        float(np.mean(best == given)),
        Counter(given.tolist()).most_common(1)[0][1] / len(given),
        [(i, int(classes[best[i]])) for i in order],
        int(np.count_nonzero(sure)),
    )


def _scores(
    features: npt.NDArray[np.float64], given: npt.NDArray[np.int64], classes: int
) -> npt.NDArray[np.float64]:
    """Returns `[num_images, classes]`: how much each image looks like each class."""
    centered = features - features.mean(axis=0)
    centered /= centered.std(axis=0) + 1e-3
    similar = centered @ centered.T
    fold = np.random.default_rng(0).permutation(len(given)) % _FOLDS
    wanted = np.eye(classes)[given]
    scores = np.zeros_like(wanted)
    for number in range(_FOLDS):
        rest, asked = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        usual = wanted[rest].mean(axis=0)
        size = _SHRINKAGE * np.trace(similar) + 1e-9
        fitted = np.linalg.solve(
            similar[np.ix_(rest, rest)] + size * np.eye(len(rest)), wanted[rest] - usual
        )
        scores[asked] = usual + similar[np.ix_(asked, rest)] @ fitted
    return scores
