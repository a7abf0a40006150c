"""Fill in the middle, against what the paper says of each order."""

from __future__ import annotations

import numpy as np

from recordmill.transforms.text.fill_in_middle import (
    FimIds,
    draw_documents,
    move_middles,
)
from recordmill.transforms.text.packing import Parts
from recordmill.transforms.text.text_spec import Gpt

IDS = FimIds(prefix=901, suffix=902, middle=903, end=900)


def documents(count: int) -> tuple[np.ndarray, Parts]:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 30, count)
    ids = np.arange(sizes.sum()).astype(np.int32) % 800
    ids[np.cumsum(sizes)[::2] - 1] = IDS.end  # others go on in another chunk
    numbers = np.arange(count)
    keys = rng.integers(0, 1 << 62, count).astype(np.uint64)
    return ids, Parts(np.cumsum(sizes) - sizes, sizes, keys, numbers, numbers)


def undone(tokens: list[int]) -> tuple[list[int], str]:
    """The document, and the order: PSM with an empty prefix looks like SPM."""
    end = [IDS.end] if tokens[-1] == IDS.end else []
    tokens = tokens[: len(tokens) - len(end)]
    if IDS.prefix not in tokens:
        return tokens + end, "none"
    assert tokens[0] == IDS.prefix
    suffix, middle = tokens.index(IDS.suffix), tokens.index(IDS.middle)
    joined = tokens[1:suffix] + tokens[middle + 1 :] + tokens[suffix + 1 : middle]
    return joined + end, "spm" if suffix == 1 else "psm"


def test_documents_are_whole_and_shares_hold() -> None:
    ids, parts = documents(3000)
    ids = np.arange(len(ids)).astype(np.int32) + 1000
    ids[(parts.starts + parts.lengths)[::2] - 1] = IDS.end
    spec = Gpt(fim_rate=0.6, fim_spm_rate=0.25)
    moved = draw_documents(parts.keys, spec=spec, seed=1)
    assert abs(moved.mean() - 0.6) < 0.03
    out, new, spm = move_middles(ids, parts, moved, special=IDS, spec=spec, seed=1)
    assert abs(spm / moved.sum() - 0.25) < 0.03
    assert new.lengths.sum() == len(out)
    orders = []
    for i in range(len(parts)):
        before = ids[parts.starts[i] : parts.starts[i] + parts.lengths[i]].tolist()
        after = out[new.starts[i] : new.starts[i] + new.lengths[i]].tolist()
        found, order = undone(after)
        assert found == before
        assert (order != "none") == moved[i]
        orders.append(order)
    empty_prefixes = orders.count("spm") - spm
    assert 0 < empty_prefixes < 0.4 * orders.count("psm")


def test_draws_are_of_the_document_alone() -> None:
    ids, parts = documents(100)
    spec = Gpt(fim_rate=0.5)
    moved = draw_documents(parts.keys, spec=spec, seed=1)
    out, new, _ = move_middles(ids, parts, moved, special=IDS, spec=spec, seed=1)
    some = parts.take(np.array([70, 3, 50]))
    again, few, _ = move_middles(ids, some, moved[[70, 3, 50]], special=IDS, spec=spec, seed=1)
    for i, which in enumerate((70, 3, 50)):
        assert again[few.starts[i] :][: few.lengths[i]].tolist() == (
            out[new.starts[which] :][: new.lengths[which]].tolist()
        )
