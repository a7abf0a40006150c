"""Phase 1: find out in seconds whether a job can run, and write its work plan.

Nothing is written before every check has passed. The plan of a killed run is resumed where it is
for the same bytes. A plan that is damaged, or that lacks files, counts as none.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import msgspec

from recordmill.pipelines.planning.existing_output import check_whole, describe_difference
from recordmill.pipelines.planning.planner import (
    Inventory,
    InventoryT,
    JobT,
    Planner,
    StagesT,
    WorkPlan,
)
from recordmill.records import manifest as m
from recordmill.records.errors import RunError, UsageError
from recordmill.records.regular_files import NotRegularError
from recordmill.records.seqio_metadata import is_seqio_cache, seqio_names
from recordmill.records.shards import shard_folder
from recordmill.records.state import Count, FormatError, convert, decode
from recordmill.records.tfds_metadata import name_and_version
from recordmill.transforms.dataset.commit import CommitSpec, old_manifest
from recordmill.transforms.dataset.in_place import check_place
from recordmill.transforms.dataset.job import Job
from recordmill.transforms.dataset.removal import (
    check_removable,
    damaged_paths,
    delete_inside,
    written_paths,
)
from recordmill.transforms.dataset.run_state import (
    DamagedStateError,
    decode_state,
    is_own,
    new_token,
)
from recordmill.transforms.dataset.workspace import Workspace
from recordmill.transforms.storage import files

_METADATA = (
    "features.json", "dataset_info.json", m.STATISTICS_PATH, m.CONFIG_PATH, *m.RUN_PATHS,
)  # fmt: skip


class _State(msgspec.Struct, frozen=True):
    """The content of `plan.json`.

    Attributes:
      fingerprint: of all that decides the bytes.
      stages: the stage plan, of the type that the planner of the job names.
      commit: what the manifest will say.
      modified: `modified` and `paths` of `Inventory`.
      run: the token of the plan.
      written: a digest of what else the plan wrote.
      rejected: number -> bytes of the files of rejects that planning wrote.
    """

    fingerprint: str
    stages: Any
    commit: CommitSpec
    modified: str
    run: str
    written: str
    rejected: dict[Count, Count] = {}

    @classmethod
    def read(cls, workspace: Workspace) -> _State | None:
        """Returns the plan at a workspace; None where there is none that can be resumed."""
        try:
            if not workspace.can_be_finished:
                return None
            state = decode_state(files.read_bytes(workspace.plan_path), cls)
            at = replace(workspace, token=state.run)
            whole = state.written == _digest_of_plan(at)
            rejects = [at.holds_rejects(number, size) for number, size in state.rejected.items()]
            return state if whole and all(rejects) and _is_claimed_by(at) else None
        except (FileNotFoundError, NotADirectoryError, NotRegularError, FormatError):
            return None


def _is_claimed_by(workspace: Workspace) -> bool:
    return all(is_own(folder, workspace.token) for folder in workspace.folders)


def _digest_of_plan(workspace: Workspace) -> str:
    """Returns a digest of the files that planning wrote before the plan.

    It is of their names and sizes, and on a disk of this machine of their contents: 10 million
    images have a gigabyte of them. Storage services check what they store.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path, size in sorted(_planned_files(workspace)):
        crc32c = files.checksum(path) if files.is_local(path) and size > 0 else 0
        digest.update(f"{path[len(workspace.work) :]}\t{size}\t{crc32c}\n".encode())
    return digest.hexdigest()


def _planned_files(workspace: Workspace) -> Iterator[tuple[str, int]]:
    inputs = files.list_files(workspace.inputs_folder)
    yield from inputs.items()
    of_images = any(path.endswith("/images-000000.jsonl") for path in inputs)
    for name in ("shards.json",) if of_images else ("vocab.txt",):  # a text job's shards come later
        path = files.join(workspace.work, name)
        yield path, files.size(path)


def plan_job(
    planner: Planner[JobT, StagesT, InventoryT], *, workers: int
) -> WorkPlan[JobT, StagesT] | None:
    """Checks a request and writes its plan, or resumes the one that is there.

    Returns None where the dataset is already complete, written by this very configuration.

    Args:
      planner: of the job that the user asked for.
      workers: for how many the input is cut; it has no influence on the output.

    Raises:
      UsageError: one line: what is wrong, what to do.
      DamagedStateError: the plan of the run that was cut short is damaged.
      RunError: the dataset is complete by its manifest, and files of it are missing or cut.
    """
    with planner.inspect() as inventory:
        job = planner.job  # which may have learned labels and splits from the input
        workspace = job.workspace
        old, damage = old_manifest(workspace.output)
        check_place(workspace, old)
        workspace.check_links((split.name for split in job.splits), job.shard_template)
        commit = _commit_spec(planner, inventory, replaces=old is not None)
        if old and old.fingerprint != commit.fingerprint and not job.overwrite:
            raise UsageError(
                f"--output {workspace.output} holds a dataset of another configuration or input "
                f"({describe_difference(old, commit)}); {planner.way_out}"
            )
        state = _State.read(workspace)
        if state and _is_resumed(job, inventory, state, commit.fingerprint):
            job = replace(job, workspace=replace(workspace, token=state.run))
            try:
                stages = convert(state.stages, planner.stages_type)
            except FormatError as error:
                raise DamagedStateError(
                    f"{workspace.plan_path} is damaged: {error}; start anew with --overwrite"
                ) from error
            return WorkPlan(
                job, state.commit, stages, inventory.input_bytes, inventory.modified, resumed=True
            )
        if not job.overwrite:
            if damage:
                raise RunError(f"{damage}; start anew with --overwrite") from damage
            if old and workspace.is_complete(commit.fingerprint):
                check_whole(workspace.output, old)
                if _is_written_of(workspace, inventory):
                    return None
                if not workspace.in_place:
                    raise UsageError(
                        f"files of the input have changed since --output {workspace.output} was "
                        "written of them: their sizes are the same, and times of last change are "
                        "not; if they were only copied or touched, the dataset is whole and can be "
                        "used as it is; --overwrite writes it anew"
                    )
            # In place what there is of a run is not worth to be kept.
            if not workspace.in_place and workspace.can_be_finished:
                _refuse_other_run(workspace, state, commit)
        planner.job = replace(job, workspace=replace(workspace, token=new_token()))
        _begin(planner, old, damaged=damage is not None)
        try:
            stages = planner.write(inventory, workers=workers)
            _write_plan(planner.job, inventory, stages, commit)
        except UsageError:
            planner.job.workspace.abandon()
            raise
        return WorkPlan(planner.job, commit, stages, inventory.input_bytes, inventory.modified)


def _write_plan(job: Job, inventory: Inventory, stages: Any, commit: CommitSpec) -> None:
    """Writes the plan, behind everything that belongs to it.

    Raises:
      RunError: another run has begun at this output meanwhile.
    """
    workspace = job.workspace
    rejects = files.list_files(workspace.rejected_folder)
    numbers = {
        int(p.rpartition("-")[2].removesuffix(".jsonl")): size for p, size in rejects.items()
    }
    state = _State(
        commit.fingerprint, stages, commit, inventory.modified + inventory.paths, workspace.token,
        _digest_of_plan(workspace), numbers,
    )  # fmt: skip
    workspace.check_own()
    workspace.write_state(workspace.plan_path, state)


def _is_resumed(job: Job, inventory: Inventory, state: _State, fingerprint: str) -> bool:
    """Tells whether the run whose plan is there is resumed, and not begun anew.

    A killed run that was begun with --overwrite is finished by the same command; one whose input
    has changed since, or that ended over the budget of rejects, is begun anew by --overwrite.

    Raises:
      UsageError: it would be resumed, but its input has changed.
    """
    if state.fingerprint != fingerprint:
        return False
    changed = state.modified != inventory.modified + inventory.paths
    begins_anew = job.overwrite or job.workspace.in_place
    if begins_anew and (changed or files.exists(job.workspace.over_budget_path)):
        return False
    if changed:
        raise UsageError(
            "the input changed since the run began that this one would finish; start anew with "
            "--overwrite"
        )
    return True


def _is_written_of(workspace: Workspace, inventory: Inventory) -> bool:
    """Tells whether the finished dataset is of the input as it is now, as far as its run says."""
    try:
        run = decode(files.read_bytes(files.join(workspace.output, m.RUN_PATH)), dict)
    except (FileNotFoundError, NotADirectoryError, FormatError):
        return True
    return run.get("input_modified", inventory.modified) == inventory.modified


def _refuse_other_run(workspace: Workspace, state: _State | None, commit: CommitSpec) -> None:
    """Checks that no unfinished run of another configuration lies at the output.

    Raises:
      UsageError: says where it lies and how to finish it.
    """
    elsewhere = workspace.other_work()
    if elsewhere:
        raise UsageError(
            f"--output {workspace.output} holds an unfinished run whose other temporary files are "
            f"in {elsewhere}; finish it with its own --temp_dir, or start anew with --overwrite"
        )
    if state:
        raise UsageError(
            f"--output {workspace.output} holds an unfinished run of another configuration or "
            f"input ({describe_difference(state.commit, commit)}); finish it with its own command, "
            "or start anew with --overwrite"
        )


def _begin(
    planner: Planner[JobT, StagesT, InventoryT], old: m.Manifest | None, *, damaged: bool
) -> None:
    """Makes the workspace ready for a new run: empty temporary folders, claimed by a marker.

    Args:
      planner: of the job.
      old: the manifest of the dataset that is there.
      damaged: there is one that cannot be read.
    """
    job, workspace = planner.job, planner.job.workspace
    planner.check_output()
    ours = written_paths(old) if old else [m.SUCCESS_PATH, m.MANIFEST_PATH]
    check_removable(workspace.output, ours)
    splits = [split.name for split in job.splits]
    is_cache = is_seqio_cache(job.shard_template)
    names = [*_METADATA, *planner.metadata, *(seqio_names(splits) if is_cache else ())]
    removed: list[str] = []
    if damaged:
        names_of_ours = [name for name in names if name not in planner.kept]
        templates, in_place = [job.shard_template], workspace.in_place
        removed = damaged_paths(workspace.output, names_of_ours, templates, in_place=in_place)
    if workspace.is_claimed:
        workspace.discard_run(published=old is None, template=job.shard_template)
    else:
        listed = {*old.paths, m.SUCCESS_PATH, *m.RUN_PATHS} if old else set(removed)
        workspace.check_free([m.SUCCESS_PATH, *(n for n in names if n not in planner.kept)], listed)
        if not workspace.in_place:
            folders = {shard_folder(name, job.shard_template) or name for name in splits}
            workspace.check_free(sorted(folders), listed)
            workspace.check_no_shards(splits, job.shard_template, listed)
    delete_inside(workspace.output, removed)
    workspace.claim()


def _fingerprint(planner: Planner[JobT, StagesT, InventoryT], inventory: Inventory) -> str:
    content = {
        "kind": planner.kind,
        "version": planner.bytes_version,
        "options": planner.job.fingerprint_options(),
        "checksums": inventory.checksums,
        "sources": inventory.sources["checksum"],
    }
    text = json.dumps(content, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _commit_spec(
    planner: Planner[JobT, StagesT, InventoryT], inventory: Inventory, *, replaces: bool
) -> CommitSpec:
    job = planner.job
    config = {"pipeline": planner.kind, **job.resolved(), **planner.config()}
    name, dataset_version = name_and_version(job.workspace.absolute_output)
    packages = ("recordmill", "apache-beam", "numpy", "numba", *planner.packages)
    versions = {package: version(package) for package in packages}
    return CommitSpec(
        name=name,
        description=planner.describe(),
        fingerprint=_fingerprint(planner, inventory),
        replaces=replaces,
        config=json.loads(json.dumps(config | inventory.checksums)),
        versions=versions | {"python": platform.python_version()},
        sources=inventory.sources,
        version=dataset_version,
        settings=planner.settings,
    )
