"""`trainwright diff`: shows what manifests would change in a cluster, with the output and exit codes of `kubectl diff`."""

from __future__ import annotations

import difflib
import secrets
import sys

import typer

from trainwright.api.errors import NotFound
from trainwright.api.kinds import kind_of
from trainwright.api.objects import Obj, described, name_of, namespace_of
from trainwright.cli.connection import HomeChoice, Kubeconfig, Namespace, SubmissionMode, jobs_cluster_for
from trainwright.cli.errors import BAD_INPUT, FAILURE, WarningPrinter, bad_input_exits, cluster_errors_exit
from trainwright.cli.manifests import checked_documents, dry_run_create
from trainwright.cli.materialize import Files
from trainwright.cluster.protocol import OnWarning
from trainwright.jobs.submit.create_object import comparable
from trainwright.submission.jobs_client import JobsClient
from trainwright.text.foreign_texts import printable
from trainwright.text.yaml_writer import to_yaml

DIFFERS = 1


def register(app: typer.Typer) -> None:
    app.command("diff")(diff)


def diff(
    filename: Files,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    home: HomeChoice = None,
    submission_mode: SubmissionMode = None,
) -> None:
    """Compare manifests with the objects in the cluster. Exit code 0: no differences, 1: differences, above 1: an error."""
    warnings = WarningPrinter()
    with bad_input_exits():
        documents = checked_documents(filename, warnings)
    differs = False
    try:
        with cluster_errors_exit():
            cluster = jobs_cluster_for(kubeconfig, home, submission_mode)
            for number, document in enumerate(documents):
                kind = kind_of(document)
                if kind is None or kind.namespaced:
                    document["metadata"].setdefault("namespace", namespace or cluster.default_namespace)
                text = _diff(cluster, document, documents[:number], warnings.of(document))
                sys.stdout.write(printable(text))
                differs = differs or bool(text)
    except typer.Exit as ended:
        raise typer.Exit(BAD_INPUT if ended.exit_code == FAILURE else ended.exit_code) from ended
    raise typer.Exit(DIFFERS if differs else 0)


def _diff(cluster: JobsClient, document: Obj, earlier: list[Obj], on_warning: OnWarning) -> str:
    """Return a unified diff; empty if there are no differences. Raises ApiError."""
    live = _get_live(cluster, document)
    before = _lines(comparable(live, document)) if live is not None else []
    after = _lines(comparable(_dry_run_create(cluster, document, earlier, on_warning), document))
    where = f"{described(document)}"
    return "".join(difflib.unified_diff(before, after, f"live {where}", f"wanted {where}"))


def _get_live(cluster: JobsClient, document: Obj) -> Obj | None:
    kind = kind_of(document)
    assert kind is not None
    try:
        return cluster.get(kind, name_of(document), namespace_of(document) if kind.namespaced else None)
    except NotFound:  # all of it would be new
        return None


def _dry_run_create(cluster: JobsClient, document: Obj, earlier: list[Obj], on_warning: OnWarning) -> Obj:
    """Return the object with the cluster's defaults, from a dry run under an unused name.

    A dry run of the update would fail for immutable fields, whose difference should be shown.
    """
    metadata = {**document["metadata"], "name": f"diff-{secrets.token_hex(8)}"}
    renamed = {**document, "metadata": metadata}
    made = dry_run_create(cluster, renamed, earlier, field_validation="Warn", on_warning=on_warning)
    return {**made, "metadata": {**made["metadata"], "name": name_of(document)}}


def _lines(obj: Obj) -> list[str]:
    return to_yaml(obj, sort_keys=True).splitlines(keepends=True)
