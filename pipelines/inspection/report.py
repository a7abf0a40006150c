"""A report of a dataset: its manifest and statistics, and a sample of its records, as one page."""

from __future__ import annotations

from recordmill.pipelines.inspection import dataset_sections, image_sections, text_sections
from recordmill.pipelines.inspection.example_section import examples_section
from recordmill.pipelines.inspection.facts import Facts
from recordmill.pipelines.inspection.faults import checks_of, find_faults
from recordmill.pipelines.inspection.feature_sums import values_section
from recordmill.pipelines.inspection.overview import overview_lines
from recordmill.pipelines.inspection.page import render


def report_page(facts: Facts) -> str:
    """Returns the page as HTML."""
    lines = dict(overview_lines(facts.records, facts.schema))
    task = lines.get("task", "")
    return render(
        title=f"{lines['dataset']}{f', {task}' if task else ''}",
        subtitle=facts.records.path,
        warnings=[(fault.text, fault.section) for fault in find_faults(facts)],
        checks=checks_of(facts),
        sections=[
            dataset_sections.overview_section(facts, lines),
            text_sections.lengths_section(facts),
            text_sections.masks_section(facts),
            text_sections.tokens_section(facts),
            image_sections.classes_section(facts),
            image_sections.images_section(facts),
            image_sections.boxes_section(facts),
            values_section(facts.samples),
            dataset_sections.contents_section(facts),
            dataset_sections.shards_section(facts),
            dataset_sections.rejects_section(facts),
            dataset_sections.run_section(facts),
            examples_section(facts),
            dataset_sections.configuration_section(facts),
        ],
        footer="Made by recordmill report. The page loads nothing.",
    )
