"""`make faults`: tries faults, prints a table of those tried and held, and fails if any did not.

python -m tests.faults --only='fuzzed' --minutes=5 --seed=7
python -m tests.faults --only='kill after each step, text/17'
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from .cases import Case, Result, try_cases
from .disks import disks
from .hostile import hostile
from .inputs import inputs
from .interruptions import count_steps, interruptions
from .stored import stored
from .users import users
from .workshop import JOBS, Workshop

_OUTCOMES = ("held", "not held", "untried")


def load() -> None:
    """Loads what cases need, before they are forked; starts no thread."""
    for command in ("images", "text", "examples", "verify"):
        import_module(f"recordmill.pipelines.commands.{command}")
    import_module("recordmill.records.codec.jit").load()


def all_cases(workshop: Workshop, seed: int) -> list[Case]:
    """Returns every case, in an order that the seed draws: a part of them is a fair sample."""
    steps = {job: count_steps(workshop, job) for job in JOBS}
    cases = [
        *interruptions(workshop, seed, steps),
        *disks(workshop, seed, steps),
        *inputs(workshop, seed),
        *stored(workshop, seed, steps),
        *hostile(workshop, seed),
        *users(workshop),
    ]
    random.Random(seed).shuffle(cases)
    return cases


def table(results: Sequence[Result]) -> list[str]:
    """Returns the lines of a table: each kind, tried and held, and the longest time."""
    counts: dict[str, Counter[str]] = {}
    longest: Counter[str] = Counter()
    for result in results:
        kind = result.case.kind
        counts.setdefault(kind, Counter())[result.outcome] += 1
        longest[kind] = max(longest[kind], round(result.seconds))
    rows = [("fault", "tried", "held", "longest, s")]
    total: Counter[str] = Counter()
    for kind in sorted(counts):
        total.update(counts[kind])
        held, tried = counts[kind]["held"], counts[kind]["held"] + counts[kind]["not held"]
        rows.append((kind, str(tried), str(held), str(longest[kind])))
    tried = total["held"] + total["not held"]
    rows.append(("all", str(tried), str(total["held"]), str(max(longest.values(), default=0))))
    width = max(len(row[0]) for row in rows)
    lines = [f"{a:<{width}}  {b:>5}  {c:>5}  {d:>10}" for a, b, c, d in rows]
    if total["untried"]:
        lines.append(f"{total['untried']} could not be tried on this machine")
    return lines


def report(results: Sequence[Result], waiting: int) -> int:
    """Prints what did not hold, and the table; returns the exit status."""
    broken = [result for result in results if result.outcome == "not held"]
    for reason in sorted({r.why for r in results if r.outcome == "untried"}):
        print(f"not tried: {reason}")
    for result in broken:
        print(f"NOT HELD  --only='{result.case.label}'\n    {result.why[:2000]}")
    print("\n".join(table(results)))
    if waiting:
        print(f"{waiting} cases were left when the time was over")
    return 1 if broken or not results else 0


def chosen(cases: Sequence[Case], only: Sequence[str], most: int | None) -> list[Case]:
    """Returns the cases whose label begins with one of the texts, or is one; at most so many."""
    if only:
        cases = [c for c in cases if any(_matches(c, each) for each in only)]
    return list(cases[:most])


def _matches(case: Case, text: str) -> bool:
    return case.label == text if "/" in text else case.label.startswith(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if everything that was tried held, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], help="KIND, or KIND/NAME")
    parser.add_argument("--minutes", type=float, default=55.0, help="afterwards no case begins")
    parser.add_argument("--most", type=int, help="the number of cases to try")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    until = time.monotonic() + options.minutes * 60
    load()
    with tempfile.TemporaryDirectory(prefix="rm-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        workshop = Workshop(root / "workshop")
        workshop.make()
        cases = chosen(all_cases(workshop, options.seed), options.only, options.most)
        results = []
        for result in try_cases(cases, root, processes=options.processes, until=until):
            results.append(result)
            if result.outcome == "not held":
                print(f"not held: {result.case.label}: {result.why[:300]}", flush=True)
            elif len(results) % 50 == 0:
                print(f"{len(results)} of {len(cases)}", flush=True)
        status = report(results, len(cases) - len(results))
        shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
