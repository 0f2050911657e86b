"""Submits or adopts one training step from the command line, and optionally waits for it."""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from trainwright.api import names
from trainwright.api.conditions import is_finished
from trainwright.api.errors import ApiError, BadRequest, Invalid, Problem
from trainwright.api.kinds import TRAINJOB
from trainwright.api.objects import Obj, described, name_of, namespace_of, uid_of
from trainwright.checkpoints.pointers import latest_export_lookup
from trainwright.cli.errors import WarningPrinter, bad_input_exits
from trainwright.cli.manifests import read_manifests, with_field_hints
from trainwright.cli.output import Format, print_lines, print_object
from trainwright.cli.request_options import in_options, setting_values
from trainwright.cli.waiting import wait_and_report
from trainwright.cluster.retrying import RetryingCluster
from trainwright.jobs import Identity, Submission, TrainRequest, Waiting, submit_or_adopt, trainjob_manifest
from trainwright.jobs.logs.training_log import results_of
from trainwright.jobs.request.invalid_settings import InvalidSettings
from trainwright.jobs.request.setting import in_groups
from trainwright.jobs.state.identity import COMMAND_LINE, new_run_id
from trainwright.jobs.submit.create_object import create_object
from trainwright.jobs.submit.resolve import resolve_with
from trainwright.jobs.submit.submit_or_adopt import Submitted
from trainwright.jobs.wait.job_events import OnJobEvents
from trainwright.jobs.wait.waiting import restarts_of_request
from trainwright.submission.jobs_client import JobsClient
from trainwright.tracking import TrackedRun, TrackingTarget, parse_targets, tracked_run, tracking

log = logging.getLogger(__name__)


class DryRun(enum.StrEnum):
    """Whether to only validate, and where."""

    none = "none"
    client = "client"
    server = "server"


@dataclass(frozen=True)
class SubmitOptions:
    """The arguments of the command."""

    settings: dict[str, Any]
    files: list[str]
    run_id: str
    dry_run: DryRun
    wait: bool
    namespace: str
    output: Format | None
    trackers: Sequence[str] = ()


def submit_step(options: SubmitOptions, waiting: Waiting, connect: Callable[[], JobsClient]) -> int:
    """Submit a step; returns the exit code. Raises ApiError, TrainJobError, NoCluster, ValueError, and Exit for invalid settings."""
    printer = WarningPrinter(in_options)
    with bad_input_exits(in_options):
        documents = read_manifests(options.files)
        request = _request(options, documents)
        if options.trackers and not options.wait:
            raise BadRequest("--tracking: metrics are sent while the command waits; add --wait")
        targets = parse_targets(options.trackers, os.environ)
    hints = with_field_hints(documents[0]) if documents else nullcontext()
    identity = Identity(COMMAND_LINE, options.run_id or new_run_id(), "train")
    if options.dry_run is DryRun.client:
        print_lines(f"run {identity.run}: the request is valid (client dry run)")
        return 0
    cluster = connect()
    namespace = options.namespace or request.namespace or cluster.default_namespace
    if options.dry_run is DryRun.server:
        with hints:
            resolved, _ = resolve_with(RetryingCluster(cluster), request, namespace, bundled=cluster.uses_bundled_runtimes)
            trainjob = trainjob_manifest(resolved, identity, namespace)
            checked = create_object(cluster, trainjob, dry_run=True, field_validation="Strict", on_warning=printer.of(trainjob))
        _show(checked, f"{described(checked)} created (server dry run)", options.output)
        return 0
    latest = latest_export_lookup(request.export_uri) if request.export_uri else None
    with hints:
        submission = Submission(cluster, request, identity, namespace, latest)
        submitted = submit_or_adopt(submission, on_warning=printer.of({"metadata": {"name": identity.run}}))
    text = f"{described(submitted.trainjob)} {_how(submitted)}, run {identity.run}"
    if not options.wait:
        _show(submitted.trainjob, text, options.output)
        return 0
    if options.output is None:
        print_lines(text)
    tracked = _tracked(tracked_run(identity, request), targets, submitted.trainjob)
    # Pods may fail as often as the request says: a step of it counts them so.
    waiting = replace(waiting, settings=replace(waiting.settings, restarts=restarts_of_request(request)))
    code = wait_and_report(submitted.cluster, submitted.trainjob, waiting, options.output, tracked)
    if code == 0:
        _note_seen(submitted.cluster, submitted.trainjob)
    if code == 0 and options.output is None and (request.func or request.code):
        results = results_of(submitted.cluster, submitted.trainjob)
        if results is not None:
            print_object({"results": results}, Format.json)
    return code


def _how(submitted: Submitted) -> str:
    if not submitted.adopted:
        return "created"
    return "adopted, which has ended before" if is_finished(submitted.trainjob) else "adopted"


@contextmanager
def _tracked(run: TrackedRun, targets: Sequence[TrackingTarget], trainjob: Obj) -> Iterator[OnJobEvents]:
    with tracking(run, targets, write=partial(print_lines, error=True)) as tracker:
        tracker.begin(uid_of(trainjob))
        yield tracker


def _note_seen(cluster: JobsClient, trainjob: Obj) -> None:
    """Note on the job that its success was reported: the same command asks for another training then."""
    metadata = {"uid": uid_of(trainjob), "annotations": {names.RESULT_SEEN_ANNOTATION: "true"}}
    try:
        RetryingCluster(cluster).patch(TRAINJOB, name_of(trainjob), {"metadata": metadata}, namespace_of(trainjob))
    except ApiError as error:  # the job may have been deleted; the success was reported all the same
        log.info("event=result_seen_not_noted name=%s error=%s", name_of(trainjob), error.message)


def _request(options: SubmitOptions, documents: list[Obj]) -> TrainRequest:
    """Create the request. Raises Invalid with every invalid setting."""
    settings = setting_values(options.settings)
    if options.files:
        if len(documents) != 1:
            raise BadRequest(f"-f: expected one TrainJob, found {len(documents)} documents; submit others without settings")
        settings["manifest"] = documents[0]
    try:
        # A cluster may know fields that this version of Trainwright does not.
        local = options.dry_run is DryRun.client
        context = {"field_validation": "Strict" if local else "Ignore"}
        return TrainRequest.parse(in_groups(TrainRequest, settings), context=context)
    except InvalidSettings as error:
        problems = [Problem(path, message) for path, message in error.problems]
        raise Invalid("; ".join(map(str, problems)), problems=problems) from None


def _show(trainjob: Obj, text: str, output: Format | None) -> None:
    if output is None:
        print_lines(text)
    else:
        print_object(trainjob, output)
