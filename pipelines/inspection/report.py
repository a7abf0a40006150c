"""A report of a dataset: its manifest and statistics, and a sample of its records, as one page."""

from __future__ import annotations

from recordmill.pipelines.inspection import dataset_sections, image_sections, text_sections
from recordmill.pipelines.inspection.example_section import examples_section
from recordmill.pipelines.inspection.facts import Facts
from recordmill.pipelines.inspection.overview import overview_lines
from recordmill.pipelines.inspection.page import render
from recordmill.pipelines.inspection.sample import shared_contents

_FEW, _LEAST_MASKED = 100, 0.5


def report_page(facts: Facts) -> str:
    """Returns the page as HTML."""
    lines = dict(overview_lines(facts.records, facts.schema))
    task = lines.get("task", "")
    stated = [str(warning.get("text", "")) for warning in facts.statistics.get("warnings", ())]
    return render(
        title=f"{lines['dataset']}{f', {task}' if task else ''}",
        subtitle=facts.records.path,
        warnings=[*stated, *_sample_warnings(facts)],
        sections=[
            dataset_sections.overview_section(facts, lines),
            text_sections.lengths_section(facts),
            text_sections.masks_section(facts),
            text_sections.tokens_section(facts),
            image_sections.classes_section(facts),
            image_sections.images_section(facts),
            image_sections.boxes_section(facts),
            dataset_sections.shards_section(facts),
            dataset_sections.rejects_section(facts),
            dataset_sections.run_section(facts),
            examples_section(facts),
            dataset_sections.configuration_section(facts),
        ],
        footer="Made by recordmill report. The page loads nothing.",
    )


def _sample_warnings(facts: Facts) -> list[str]:
    found = []
    for name, sample in facts.samples.items():
        hidden = sum(sample.hidden.values())
        share = sample.hidden["masked"] / hidden if hidden else 1.0
        if hidden >= _FEW and share < _LEAST_MASKED:
            found.append(
                f"{share:.1%} of the predicted positions of {name} hold [MASK], where about "
                "80 % are meant: positions and tokens do not fit each other"
            )
        if sample.repeated:
            found.append(
                f"{sample.repeated:,} of {sample.records:,} sampled records of {name} have "
                "contents that other records have too: copies, or files that are there twice"
            )
    for one, other, both in shared_contents(facts.samples):
        found.append(f"{both:,} sampled contents are both in {one} and in {other}")
    return found + _twin_shards(facts)


def _twin_shards(facts: Facts) -> list[str]:
    manifest = facts.records.manifest
    shards: dict[tuple[int, int], list[str]] = {}
    for shard in manifest.shards if manifest else ():
        if shard.records:
            shards.setdefault((shard.crc32c, shard.file_bytes), []).append(shard.name.path)
    return [
        f"{' and '.join(paths[:3])} have the same bytes"
        for paths in shards.values()
        if len(paths) > 1
    ]
