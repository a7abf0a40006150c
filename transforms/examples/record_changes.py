"""What is done to records between reading them and giving each its key.

`--where` leaves records out, functions of `--map` change, drop or multiply them, and `--schema`
refuses those that do not fit it; `--key` gives each its place: in this order. A job without these
flags has none of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from recordmill.records.arrays import Bools
from recordmill.records.codec.checking import SchemaChecker
from recordmill.records.codec.content_hash import hash_contents
from recordmill.records.codec.framing import FOOTER_BYTES, HEADER_BYTES
from recordmill.records.conditions import parse_comparisons
from recordmill.records.errors import RunError, UsageError
from recordmill.records.example_values import parse_example
from recordmill.records.schema import Schema
from recordmill.transforms.dataset.rejects import Reject
from recordmill.transforms.dataset.user_functions import ElementError, FunctionChain
from recordmill.transforms.examples.example_elements import (
    checked_element,
    encode_in_order,
    size_of,
)
from recordmill.transforms.examples.examples_job import ExamplesJob
from recordmill.transforms.examples.record_filter import fulfilling
from recordmill.transforms.examples.record_source import RecordBatch, RecordFileRange
from recordmill.transforms.examples.sort_keys import KeyMaker

CHANGES = ("dropped_where", "dropped_map", "records_added")  # what is counted
_DETAIL_CHARACTERS = 400
_BATCH_BYTES = 1 << 23  # that functions return, before it is handed on
Element: TypeAlias = bytes | dict[str, Any]


class RecordChanges:
    """Changes batches of records as a job says.

    Raises:
      RunError: a function of --map cannot be loaded on this worker.
    """

    def __init__(self, job: ExamplesJob) -> None:
        records = job.records
        self._where = parse_comparisons(records.where, None) if records.where else ()
        self._checker = SchemaChecker(Schema(job.given_schema)) if job.given_schema else None
        self._map = job.map
        self._keys = KeyMaker(job.read_key_splits()) if records.key else None
        self._chain: FunctionChain[Any] | None = None
        if job.map:
            self._chain = FunctionChain(job.map, dict, bytes)

    def apply(
        self, batches: Iterable[RecordBatch], source: RecordFileRange, counts: Counter[str]
    ) -> Iterator[RecordBatch]:
        """Yields what becomes of batches, and counts what is left out and added.

        Raises:
          RunError: --where does not fit the records, or a function raised and that ends the run.
        """
        for batch in batches:
            chosen = self._filtered(batch, source, counts) if self._where else batch
            mapped = self._mapped(chosen, source, counts) if self._chain else iter([chosen])
            for each in mapped:
                fitting = self._fitting(each, source) if self._checker else each
                yield self._with_keys(fitting, source) if self._keys else fitting

    def _filtered(
        self, batch: RecordBatch, source: RecordFileRange, counts: Counter[str]
    ) -> RecordBatch:
        """Leaves out the records for which --where does not hold."""
        if not len(batch.begins):
            return batch
        try:
            holds, featureless = fulfilling(self._where, batch.data, batch.begins, batch.ends)
        except UsageError as error:
            raise RunError(f"{error} (in {source.name})") from error
        holds[featureless] = False
        rejects = [
            _reject(batch, row, source, "filter", "not_an_example", "--where needs its features")
            for row in featureless.tolist()
        ]
        counts["dropped_where"] += int((~holds).sum()) - len(rejects)
        return _only(batch, holds, rejects)

    def _mapped(
        self, batch: RecordBatch, source: RecordFileRange, counts: Counter[str]
    ) -> Iterator[RecordBatch]:
        """Yields the records that functions leave as they are, and those that they return."""
        kept = np.zeros(len(batch.begins), np.bool_)
        rejects: list[Reject] = []
        elements: list[Element] = []
        origins: list[tuple[int, int]] = []
        size = 0
        for row, (begin, end) in enumerate(
            zip(batch.begins.tolist(), batch.ends.tolist(), strict=True)
        ):
            data = batch.data[begin + HEADER_BYTES : end - FOOTER_BYTES].tobytes()
            element = _element(data)
            before = _copied(element)
            try:
                place = f"{source.name} at {batch.positions[row]}"
                results = self._results(element, before, place)
            except ElementError as error:
                detail = str(error)[:_DETAIL_CHARACTERS]
                rejects.append(_reject(batch, row, source, "map", "map_error", detail))
                continue
            if len(results) == 1 and results[0] is element:
                kept[row] = True
                continue
            counts["dropped_map"] += not results
            counts["records_added"] += max(len(results) - 1, 0)
            elements += results
            origins += [(int(batch.positions[row]), number) for number in range(len(results))]
            size += sum(map(size_of, results))
            if size >= _BATCH_BYTES:
                yield _encoded(elements, origins, batch.extent)
                elements, origins, size = [], [], 0
        if elements:
            yield _encoded(elements, origins, batch.extent)
        yield _only(batch, kept, rejects)

    def _results(self, element: Element, before: Element, place: str) -> list[Element]:
        """Calls the functions, and checks that what they return can be a record.

        Args:
          element: for the functions, which may change it.
          before: a copy of it.
          place: of the record, for messages.

        Returns:
          What they return, made anew but for the element where nothing changed it.

        Raises:
          ElementError: they raised, or returned what cannot.
        """
        try:
            results = self._chain(element) if self._chain else [element]
            try:
                return [
                    each if each is element and _is_same(element, before) else checked_element(each)
                    for each in results
                ]
            except (TypeError, ValueError, OverflowError) as error:
                raise ElementError(f"{self._map.functions[-1].name} returned: {error}") from error
        except ElementError as error:
            self._map.check_goes_on(error, f"the record of {place}")
            raise

    def _fitting(self, batch: RecordBatch, source: RecordFileRange) -> RecordBatch:
        """Refuses the records that do not fit --schema."""
        begins, ends = batch.begins, batch.ends
        fits = np.ones(len(begins), np.bool_)
        rejects: list[Reject] = []
        at = 0
        while self._checker is not None and at < len(begins):
            at += self._checker.count_fitting(batch.data, begins[at:], ends[at:])
            if at < len(begins):
                record = batch.data[begins[at] : ends[at]]
                (defect,) = self._checker.check(record, np.array([0, len(record)], np.int64))
                rejects.append(_reject(batch, at, source, "parse", "other_schema", defect.problem))
                fits[at] = False
                at += 1
        return _only(batch, fits, rejects)

    def _with_keys(self, batch: RecordBatch, source: RecordFileRange) -> RecordBatch:
        """Gives records the keys of their values, and refuses those that have none."""
        if self._keys is None or not len(batch.begins):
            return batch
        begins, ends = batch.begins, batch.ends
        hashes = hash_contents(batch.data, begins + HEADER_BYTES, ends - FOOTER_BYTES)[:, 0]
        has, keys = self._keys.keys(batch.data, begins, ends, hashes)
        rejects = [
            _reject(batch, row, source, "parse", "no_key", self._keys.wanted)
            for row in np.flatnonzero(~has).tolist()
        ]
        return replace(_only(batch, has, rejects), keys=keys[has])


def _reject(
    batch: RecordBatch, row: int, source: RecordFileRange, stage: str, reason: str, detail: str
) -> Reject:
    return Reject(source.name, int(batch.positions[row]), stage, reason, detail)


def _only(batch: RecordBatch, kept: Bools, rejects: list[Reject]) -> RecordBatch:
    """Returns some records of a batch; where they are few, without the bytes of the others."""
    rejected = (*batch.rejects, *rejects)
    if kept.all():
        return replace(batch, rejects=rejected)
    positions = batch.positions[kept]
    numbers = None if batch.numbers is None else batch.numbers[kept]
    begins, ends, data = batch.begins[kept], batch.ends[kept], batch.data
    sizes = ends - begins
    if int(sizes.sum()) < len(data) // 2:
        pairs = zip(begins.tolist(), ends.tolist(), strict=True)
        data = np.concatenate([data[:0], *(data[begin:end] for begin, end in pairs)])
        ends = np.cumsum(sizes)
        begins = ends - sizes
    return RecordBatch(
        data, begins, ends, batch.position, batch.used_bytes, rejected, positions, numbers,
        batch.extent,
    )  # fmt: skip


def _encoded(elements: list[Element], origins: list[tuple[int, int]], extent: int) -> RecordBatch:
    """Returns elements as records of a batch, with the record that each is made of."""
    data, begins, ends = encode_in_order(elements)
    positions, numbers = np.array(origins, np.int64).T
    return RecordBatch(data, begins, ends, 0, 0, (), positions, numbers, extent)


def _element(data: bytes) -> Element:
    """Returns what functions see of a record: of what is no tf.Example its bytes."""
    try:
        return parse_example(data)
    except ValueError:
        return data


def _copied(element: Element) -> Element:
    """Returns an element whose values nobody changes."""
    if isinstance(element, bytes):
        return element
    return {name: values.copy() for name, values in element.items()}


def _is_same(element: Element, before: Element) -> bool:
    """Tells whether a function has left an element as it was."""
    if isinstance(element, bytes) or isinstance(before, bytes):
        return True
    return element.keys() == before.keys() and all(
        _are_equal(element[name], values) for name, values in before.items()
    )


def _are_equal(values: Any, before: Any) -> bool:
    if type(values) is not type(before):
        return False
    if isinstance(before, list):
        return bool(values == before)
    same = values.dtype == before.dtype and values.shape == before.shape
    return bool(same and values.tobytes() == before.tobytes())
