"""One training step from the command line: its request, submitted or adopted, and waited for where that is asked for."""

from __future__ import annotations

import enum
import getpass
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from trainwright.api.errors import BadRequest, Invalid, Problem
from trainwright.api.objects import Obj, described
from trainwright.checkpoints.resume_source import latest_export_lookup
from trainwright.cli.errors import bad_input_exits
from trainwright.cli.manifests import read_manifests
from trainwright.cli.output import Format, print_object
from trainwright.cli.request_options import setting_values
from trainwright.cli.waiting import Wait, waited_for
from trainwright.jobs import Identity, TrainRequest, submit_or_adopt, trainjob_manifest
from trainwright.jobs.logs.results import results_of
from trainwright.jobs.request.code_package import pack_code
from trainwright.jobs.submit.compatibility import check_compatible
from trainwright.jobs.submit.runtime_choice import find_runtime
from trainwright.submission.jobs_client import JobsClient

OWNER = "cli"


class DryRun(enum.StrEnum):
    """How far a submission goes."""

    none = "none"
    client = "client"
    server = "server"


@dataclass(frozen=True)
class Submission:
    """What the command was given."""

    settings: dict[str, Any]
    files: list[str]
    run_id: str
    dry_run: DryRun
    wait: bool
    namespace: str
    output: Format | None


def submit_step(given: Submission, how: Wait, connect: Callable[[], JobsClient]) -> int:
    """Returns the exit code. Raises ApiError, TrainJobError, NoCluster, ValueError, and Exit for settings that are wrong."""
    with bad_input_exits():
        request = _request(given)
    identity = Identity(OWNER, given.run_id or f"{_user()}-{time.strftime('%Y%m%d-%H%M%S')}", "train")
    if given.dry_run is DryRun.client:
        print(f"run {identity.run}: the request is valid (client dry run)")
        return 0
    cluster = connect()
    namespace = given.namespace or request.namespace or cluster.default_namespace
    if given.dry_run is DryRun.server:
        checked = _dry_run(cluster, request, identity, namespace)
        _show(checked, f"{described(checked)} created (server dry run)", given.output)
        return 0
    latest = latest_export_lookup(identity.run, request.export_uri) if request.export_uri else None
    submitted = submit_or_adopt(cluster, request, identity, namespace, latest_checkpoint=latest)
    where = submitted.cluster or cluster
    words = f"{described(submitted.trainjob)} {'adopted' if submitted.adopted else 'created'}, run {identity.run}"
    if not given.wait:
        _show(submitted.trainjob, words, given.output)
        return 0
    if given.output is None:
        print(words)
    code = waited_for(where, submitted.trainjob, how, given.output)
    if code == 0 and given.output is None and (request.func or request.code):
        results = results_of(where, submitted.trainjob)
        if results is not None:
            print_object({"results": results}, Format.json)
    return code


def _request(given: Submission) -> TrainRequest:
    """Raises Invalid with every setting that is wrong."""
    settings = setting_values(given.settings)
    if given.files:
        documents = read_manifests(given.files)
        if len(documents) != 1:
            raise BadRequest(f"-f: a step is one TrainJob, found {len(documents)} documents; submit others without settings")
        settings["manifest"] = documents[0]
    try:
        return TrainRequest.from_parameters(settings)
    except ValidationError as error:
        problems = [_problem(one["loc"], str(one["msg"]).removeprefix("Value error, ")) for one in error.errors()]
        raise Invalid("; ".join(map(str, problems)), problems=problems) from None


def _problem(loc: Sequence[str | int], message: str) -> Problem:
    """One of several settings together begins with the name of one of them."""
    field, colon, rest = message.partition(": ")
    if not loc and colon and field in TrainRequest.model_fields:
        return Problem(field, rest)
    path = ".".join(map(str, loc))
    return Problem(path, message.removeprefix(f"{path}: "))


def _user() -> str:
    """A container may run as a user id that nobody has given a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return OWNER


def _dry_run(cluster: JobsClient, request: TrainRequest, identity: Identity, namespace: str) -> Obj:
    """What would be created, as the cluster would take it."""
    runtime = find_runtime(cluster, request, namespace, bundled=cluster.uses_bundled_runtimes).runtime
    check_compatible(request, runtime)
    code = pack_code(request.code) if request.code else None
    return cluster.create(trainjob_manifest(request, identity, namespace, runtime, code=code), dry_run=True)


def _show(trainjob: Obj, words: str, output: Format | None) -> None:
    if output is None:
        print(words)
    else:
        print_object(trainjob, output)
