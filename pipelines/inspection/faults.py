"""What looks wrong with a dataset: the number, why it matters, what to do, and where it shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from recordmill.pipelines.inspection.contents import Leak, SplitContents
from recordmill.pipelines.inspection.facts import Facts
from recordmill.pipelines.inspection.sample import SplitSample

_FEW = 100
_MUCH_PADDING = 0.5
_MANY_EMPTY = 0.2
_LEAST_MASKED = 0.5
_DOUBTFUL = 0.03  # of labels: a simple classifier is wrong about some that are right
_SECTIONS = {
    "padding": "lengths",
    "random_next": "masks",
    "unknown_tokens": "tokens",
    "images_all_alike": "images",
    "masks_without_object": "images",
    "drawn_on": "images",
    "boxes_dropped": "boxes",
    "boxes_clipped": "boxes",
    "class_with_one_example": "classes",
    "one_class": "classes",
    "shared_content": "contents",
}


# What can be wrong, by what a dataset has.
_CHECKS = {
    "numbers": "NaN and infinite numbers",
    "rows": "padding",
    "masks": "positions of masks",
    "unknown": "unknown tokens",
    "contents": "copies of records",
    "shards": "copies of shards",
    "leaks": "contents in two splits",
    "labels": "contents under two labels",
    "looks": "labels against looks",
    "classes": "classes that train lacks",
    "objects": "masks without an object",
    "boxes": "boxes",
    "rejects": "rejects",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What looks wrong, in a sentence, and the section that shows it, "" for none."""

    text: str
    section: str = ""


def find_faults(facts: Facts) -> list[Fault]:
    """Returns what looks wrong: what the run warned of, then what the records show."""
    found = [Fault(line, "shards") for line in facts.records.problems + facts.records.empty]
    if not facts.records.finished:
        found.append(Fault("The dataset is not finished: run its command again"))
    found += _of_rejects(facts)
    notes = facts.run.get("notes")
    if isinstance(notes, list):
        found += [Fault(f"The run said: {note}", "run") for note in notes]
    stated = set()
    for warning in facts.statistics.get("warnings", ()):
        rule = str(warning.get("rule", ""))
        stated.add((rule, str(warning.get("split", ""))))
        found.append(Fault(str(warning.get("text", "")), _SECTIONS.get(rule, "rejects")))
    for name, sample in facts.samples.items():
        found += _of_numbers(name, sample)
        found += _of_rows(name, sample, stated=("padding", name) in stated)
        found += _of_masks(name, sample, facts.mask_id)
    found += _of_shards(facts)
    for name, contents in facts.contents.items():
        found += _of_copies(name, contents, facts)
    leaks = (leak for leak in facts.leaks if ("shared_content", leak.split) not in stated)
    found += map(_of_leak, leaks)
    return [*found, *_of_labels(facts), *_of_classes(facts)]


def checks_of(facts: Facts) -> str:
    """Returns, in words, what was looked at: what this dataset has, and no more."""
    samples, splits = facts.samples.values(), facts.splits.values()
    contents = [one for one in facts.contents.values() if one.records]
    check, _ = facts.label_check
    done = {
        "numbers": any(not one.is_bytes for s in samples for one in s.features.values()),
        "rows": any(s.records > 1 and s.row_bounds[0] == s.row_bounds[1] > 0 for s in samples)
        or any("padding_rate" in sums for sums in splits),
        "masks": any(sample.predicted >= _FEW for sample in samples),
        "unknown": any("unknown_rate" in sums for sums in splits),
        "contents": bool(contents),
        "shards": len([f for split in facts.records.splits.values() for f in split]) > 1,
        "leaks": len(contents) > 1,
        "labels": any(label is not None for one in contents for *_, label in one.first.values()),
        "looks": bool(check and check.tells),
        "classes": len([sums for sums in splits if sums.get("classes")]) > 1,
        "objects": any("masks_without_object" in sums for sums in splits),
        "boxes": any("boxes_clipped" in sums for sums in splits),
        "rejects": facts.records.manifest is not None,
    }
    return ", ".join(text for name, text in _CHECKS.items() if done[name]) or "nothing"


def _of_numbers(name: str, sample: SplitSample) -> Iterator[Fault]:
    for feature, sums in sorted(sample.features.items()):
        if sums.nan or sums.infinite:
            kinds = [f"{sums.nan:,} NaN"] * bool(sums.nan)
            kinds += [f"{sums.infinite:,} infinite ones"] * bool(sums.infinite)
            yield Fault(
                f"{feature} of {sample.records:,} sampled records of {name} has "
                f"{' and '.join(kinds)} among its numbers: a loss with one of them is NaN too. "
                "Remove or replace them in the input",
                "values",
            )


def _of_rejects(facts: Facts) -> Iterator[Fault]:
    manifest = facts.records.manifest
    rejected = manifest.counts.get("rejected") or {} if manifest else {}
    total = sum(rejected.values())
    if total:
        ordered = sorted(rejected, key=lambda reason: -rejected[reason])
        reasons = ", ".join(f"{reason} {rejected[reason]:,}" for reason in ordered)
        were = "input was" if total == 1 else "inputs were"
        yield Fault(
            f"{total:,} {were} rejected, and their content is missing: {reasons}. The lines in "
            "_meta/rejected say which",
            "rejects",
        )


def _of_rows(name: str, sample: SplitSample, *, stated: bool) -> Iterator[Fault]:
    if sample.row_bounds[0] != sample.row_bounds[1] or sample.records < 2 or stated:
        return  # rows of any length have no padding
    tokens = sum(length * count for length, count in sample.lengths.items())
    padding = 1 - tokens / sample.row_lengths if sample.row_lengths else 0.0
    empty = sample.nearly_empty / sample.records
    longest = max(sample.lengths, default=0)
    if empty >= _MANY_EMPTY:
        yield Fault(
            f"{empty:.1%} of the rows of {name} are nearly all padding (at most an eighth is "
            "tokens): they take training time and teach nothing. Use longer documents "
            "(--documents=file), a smaller --max_seq_length, or drop short inputs",
            "lengths",
        )
    elif padding > _MUCH_PADDING:
        yield Fault(
            f"{padding:.1%} of the positions of {name} are padding, which takes training time and "
            f"teaches nothing: the longest row has {longest} tokens; use a smaller "
            "--max_seq_length, or longer documents (--documents=file)",
            "lengths",
        )


def _of_masks(name: str, sample: SplitSample, mask_id: int | None) -> Iterator[Fault]:
    if sample.predicted < _FEW:
        return
    _, shares = sample.mask_token(mask_id)
    here = shares.get(0, 0.0)
    offset = max(shares, key=lambda o: shares[o]) if shares else 0
    if offset and shares[offset] >= _LEAST_MASKED > here:
        where = f"{abs(offset)} {'after' if offset > 0 else 'before'} them"
        yield Fault(
            f"The masks of {name} are shifted by {-offset:+d}: {here:.1%} of the predicted "
            f"positions hold [MASK], and {shares[offset]:.1%} of the tokens {where} are it. The "
            "model would learn to predict words that it sees; write masked_lm_positions as "
            "positions in input_ids, from 0, [CLS] included",
            "masks",
        )
    elif shares and here < _LEAST_MASKED and not offset:
        yield Fault(
            f"{here:.1%} of the predicted positions of {name} hold [MASK], where about 80 % are "
            "meant: positions and tokens do not fit each other, or --vocab_file is another one",
            "masks",
        )
    elif not shares:
        yield Fault(
            f"No token is on half of the predicted positions of {name}, nor beside them, where "
            "[MASK] is meant to be on about 80 %: positions and tokens do not fit each other",
            "masks",
        )


def _of_shards(facts: Facts) -> Iterator[Fault]:
    for paths in facts.twin_files:
        yield Fault(
            f"{' and '.join(paths[:3])} have the same bytes: their records count twice. Write the "
            "dataset again, or remove one of the files that were copied",
            "shards",
        )


def _of_copies(name: str, contents: SplitContents, facts: Facts) -> Iterator[Fault]:
    if contents.copies:
        compared = contents.compared()
        pairs = ", ".join(f"{name}:{a} = {name}:{b}" for a, b in contents.pairs)
        yield Fault(
            f"{contents.copies:,} of {compared:,} compared records of {name} "
            f"({contents.copies / compared:.1%}) have contents that other records have too "
            f"({pairs}): copies in the input, or files that are there twice. {_advice(facts)}",
            "contents",
        )
    if contents.two_labels:
        pairs = ", ".join(f"{name}:{a} and {name}:{b}" for a, b in contents.two_labels)
        yield Fault(
            f"{contents.num_two_labels:,} records of {name} have the content of another record "
            f"and another label ({pairs}): one of the labels is wrong",
            "contents",
        )


def _advice(facts: Facts) -> str:
    """Returns what to do about copies in a split, by the job that wrote the dataset."""
    if facts.config("objective"):
        return "--deduplicate=exact keeps the first copy of each document"
    if facts.config("images"):
        return "Remove them from --input; --copies without --augmentations makes some too"
    return "Remove them from the input"


def _of_leak(leak: Leak) -> Fault:
    part = "" if leak.whole else ", of the part of both that was read; --sample=N reads more"
    a, b = leak.first
    labels = f" {leak.two_labels:,} of them have another label there." * bool(leak.two_labels)
    return Fault(
        f"{leak.records:,} of {leak.compared:,} compared records of {leak.split} "
        f"({leak.records / leak.compared:.1%}) are also in {leak.other} ({leak.split}:{a} is "
        f"{leak.other}:{b}{part}): scores on {leak.split} will be too good.{labels} Keep copies in "
        "one split with --split_by, or let the hash of the content decide (--splits with shares)",
        "contents",
    )


def _of_labels(facts: Facts) -> Iterator[Fault]:
    check, looks = facts.label_check
    if check and check.tells and check.contradicted >= max(3, _DOUBTFUL * len(looks)):
        yield Fault(
            f"{check.contradicted:,} of {len(looks):,} sampled images "
            f"({check.contradicted / len(looks):.1%}) look like another class than their label's, "
            f"where a simple classifier agrees with {check.agreement:.1%} of the labels: labels "
            "may be swapped. Look at them below; --labels=FILE gives right ones",
            "classes",
        )


def _of_classes(facts: Facts) -> Iterator[Fault]:
    train = facts.splits.get("train", {}).get("classes")
    if not train:
        return
    for name, sums in facts.splits.items():
        unknown = sorted(set(sums.get("classes", ())) - set(train))
        if unknown:
            some = ", ".join(unknown[:3]) + (", …" if len(unknown) > 3 else "")
            yield Fault(
                f"{len(unknown):,} classes of {name} have no example in train ({some}): no model "
                "can learn them. Give more examples, or another --random_seed or --splits",
                "classes",
            )
