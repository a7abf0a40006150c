"""Canaries: what `pipelines/beam_internals.py` uses and nobody promises is still as it was."""

from __future__ import annotations

import argparse
import inspect
import logging
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from recordmill.pipelines import beam_internals as compat
from recordmill.pipelines import command_line
from recordmill.pipelines.engines import local
from recordmill.pipelines.engines.error_text import without_stage_names
from recordmill.pipelines.faces import Parser
from recordmill.records.errors import RunError


def _fail(_: int) -> None:
    raise RunError("no more of this")


def test_beam_appends_the_stage_to_errors() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    _ = pipeline | beam.Create([1]) | "DoIt" >> beam.Map(_fail)
    with pytest.raises(RunError) as error:
        pipeline.run().wait_until_finish()
    assert str(error.value) == "no more of this [while running 'DoIt']"
    assert without_stage_names(str(error.value)) == "no more of this"


def test_the_text_of_beams_options_names_all_flags() -> None:
    parser = Parser(conflict_handler="resolve")
    for options in PipelineOptions.__subclasses__():
        if options.__module__ == PipelineOptions.__module__:
            options._add_argparse_args(parser)
    flags = {flag for flag in compat.option_actions(parser) if flag.startswith("--")}
    assert len(flags) > 100
    assert flags <= compat._named_flags()


def test_beams_worker_is_a_module_with_main() -> None:
    from importlib import import_module

    assert callable(import_module(compat.BEAM_WORKER_MODULE).main)


def test_beams_flags_can_be_added_to_a_parser() -> None:
    parser = Parser(add_help=False, conflict_handler="resolve")
    compat.add_beam_arguments(parser)
    names = compat.option_actions(parser)
    assert {"--runner", "--flink_master", "--direct_num_workers"} <= names.keys()
    assert StandardOptions in PipelineOptions.__subclasses__()


def test_beam_logs_job_servers_by_that_name() -> None:
    from apache_beam.utils import subprocess_server

    assert isinstance(subprocess_server._LOGGER, logging.Logger)
    assert subprocess_server._LOGGER.name == compat.BEAM_SERVER_LOGGER


def test_dataflow_lists_the_errors_of_a_job() -> None:
    from apache_beam.runners.dataflow.dataflow_runner import DataflowPipelineResult as Result
    from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
    from apache_beam.runners.dataflow.internal.apiclient import DataflowApplicationClient as Client

    assert {"job_id", "page_token", "minimum_importance"} <= set(
        inspect.signature(Client.list_messages).parameters
    )
    assert "self._runner = runner" in inspect.getsource(Result.__init__)
    assert "dataflow_client" in inspect.getsource(DataflowRunner)
    pages: dict[Any, Any] = {
        None: ([SimpleNamespace(message_text="one")], "next"),
        "next": ([SimpleNamespace(message_text="two")], None),
    }
    client = SimpleNamespace(
        list_messages=lambda job, page_token, minimum_importance: pages[page_token]
    )
    result = SimpleNamespace(job_id=lambda: "7", _runner=SimpleNamespace(dataflow_client=client))
    assert compat.dataflow_errors(result) == ["one", "two"]


def test_argparse_lists_flags_by_name() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    action = parser.add_argument_group("one").add_argument("-x", "--xx")
    assert compat.option_actions(parser) == {"-x": action, "--xx": action}


def test_threads_that_keep_the_process_alive_have_the_names_we_look_for() -> None:
    assert command_line._ENGINE_THREAD == local.STAGES_THREAD
