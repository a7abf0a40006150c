"""What a report shows of records of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recordmill.pipelines.inspection import plots
from recordmill.pipelines.inspection.dataset_sections import shown
from recordmill.pipelines.inspection.facts import Facts
from recordmill.pipelines.inspection.page import Plot, Section, Table
from recordmill.pipelines.inspection.spellings import find_spelling, spell_alone
from recordmill.transforms.text.written_objective import objective_options

_MOST_FREQUENT = 30


def lengths_section(facts: Facts) -> Section:
    """Returns how long examples are, and how full rows are."""
    section = Section("lengths", "Lengths of examples")
    stored = {
        name: np.array(sums["tokens_per_example"])
        for name, sums in facts.splits.items()
        if sums.get("tokens_per_example")
    }
    series = {name: (np.arange(len(n) + 1) - 0.5, n) for name, n in stored.items()}
    if not series:
        for name, sample in facts.samples.items():
            if sample.lengths:
                counts = np.zeros(max(sample.lengths) + 1, np.int64)
                counts[list(sample.lengths)] = list(sample.lengths.values())
                series[name] = (np.arange(len(counts) + 1) - 0.5, counts)
    if series:
        binned = {name: _binned(edges, numbers) for name, (edges, numbers) in series.items()}
        shares = {
            name: (edges, numbers / max(1, numbers.sum()))
            for name, (edges, numbers) in binned.items()
        }
        svg = plots.histogram("Tokens of an example", shares, x="tokens", y="share of examples")
        section.plots.append(Plot("Tokens of an example", svg))
    fill = {
        name: 1 - sums["padding_rate"]
        for name, sums in facts.splits.items()
        if "padding_rate" in sums
    } or {
        name: sum(n * count for n, count in sample.lengths.items()) / sample.row_lengths
        for name, sample in facts.samples.items()
        if sample.row_lengths
    }
    if fill:
        rows = [(name, f"{share:.1%}", f"{1 - share:.1%}") for name, share in fill.items()]
        section.tables.append(Table("Fill", ("Split", "Filled", "Padding"), rows))
    return section


def masks_section(facts: Facts) -> Section:
    """Returns the rates of masks beside what was asked for."""
    section = Section("masks", "Masks")
    manifest = facts.records.manifest
    asked = objective_options(manifest.config).get("masked_lm_prob") if manifest else None
    rows = []
    for name, sums in facts.splits.items():
        if "prediction_rate" not in sums:
            continue
        rows += [
            (f"{name}: predicted tokens", _percent(sums["prediction_rate"]), _percent(asked)),
            (f"{name}: [MASK]", _percent(sums.get("masked_rate")), "80.0%"),
            (f"{name}: another token", _percent(sums.get("replaced_rate")), "10.0%"),
            (f"{name}: kept", _percent(sums.get("kept_rate")), "10.0%"),
        ]
        if "random_next_rate" in sums:
            found = _percent(sums["random_next_rate"])
            rows.append((f"{name}: random second segments", found, "50.0%"))
    shown = {}
    for name, sample in facts.samples.items():
        mask_id, shares = sample.mask_token(facts.mask_id)
        if mask_id is None:
            continue
        masked, kept = shares.get(0, 0.0), sample.kept / sample.predicted
        rows += [
            (f"{name}, sampled records: [MASK]", _percent(masked), "80.0%"),
            (f"{name}, sampled records: another token", _percent(1 - masked - kept), "10.0%"),
            (f"{name}, sampled records: kept", _percent(kept), "10.0%"),
        ]
        shown[name] = {f"{offset:+d}" if offset else "0": s for offset, s in shares.items()}
    if shown:
        title = "Where [MASK] is"
        svg = plots.bars(
            title, shown, x="tokens after the predicted position", y="share", in_order=True
        )
        note = "of the sampled records; all of it but chance belongs at 0"
        section.plots.append(Plot(title, svg, note))
    if rows:
        section.tables.append(Table("Rates of masks", ("Rate", "Found", "Asked for"), rows))
    return section


def tokens_section(facts: Facts) -> Section:
    """Returns the share of unknown tokens, and the most frequent tokens."""
    section = Section("tokens", "Tokens")
    rates = [
        (name, f"{sums['unknown_tokens']:,}", _percent(sums.get("unknown_rate")))
        for name, sums in facts.splits.items()
        if "unknown_tokens" in sums
    ]
    if rates:
        header = ("Split", "Unknown tokens", "Share")
        section.tables.append(Table("Unknown tokens", header, rates))
    for name, sample in facts.samples.items():
        total = sum(sample.tokens.values())
        if total:
            frequent = {
                _word(token, facts.vocabulary): count / total
                for token, count in sample.tokens.most_common(_MOST_FREQUENT)
            }
            title = f"Most frequent tokens of {name}"
            svg = plots.bars(title, {name: frequent}, y="share of tokens")
            different = f"{len(sample.tokens):,} different tokens"
            note = f"of {sample.records:,} sampled records, {different}"
            section.plots.append(Plot(title, svg, note))
    return section


def _word(token: Any, vocabulary: Sequence[str] | None) -> str:
    if isinstance(token, bytes):
        return token.decode("utf-8", "replace")
    if vocabulary and 0 <= token < len(vocabulary):
        return spell_alone(vocabulary[token], find_spelling(vocabulary))
    return str(token)


def _percent(share: object) -> str:
    """Returns a share as text, "" where there is none, or one that no job of ours is asked for."""
    return shown(share, lambda number: f"{float(number):.1%}")


def _binned(edges: Any, numbers: Any, most: int = 80) -> tuple[Any, Any]:
    """Returns a histogram of at most `most` bars."""
    each = -(-len(numbers) // most)
    padded = np.concatenate([numbers, np.zeros(-len(numbers) % each, numbers.dtype)])
    sums = padded.reshape(-1, each).sum(axis=1)
    return edges[0] + each * np.arange(len(sums) + 1), sums
