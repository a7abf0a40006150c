"""Flags of a command line that are the engine's and Beam's, without a command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from recordmill.pipelines.engines.choice import check_beam_flags, choose_engine
from recordmill.pipelines.engines.engine_spec import EngineSpec
from recordmill.records.spec import build, naming_flags, options_of

if TYPE_CHECKING:
    from recordmill.pipelines.engines.choice import Engine


@naming_flags()
def engine_of(flags: Iterable[str]) -> Engine:
    """Returns the engine that flags choose; those that are not ours are Beam's."""
    ours: dict[str, object] = {}
    beam = []
    for flag in flags:
        name, equals, value = flag.removeprefix("--").partition("=")
        if name == "no_wait":
            ours["wait"] = False
        elif name in options_of(EngineSpec):
            ours[name] = value if equals else True
        else:
            beam.append(flag)
    check_beam_flags(beam, options_of(EngineSpec))
    return choose_engine(build(EngineSpec, ours), beam)
