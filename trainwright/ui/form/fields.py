"""The fields of the form: the same twenty as those of the pipeline and of the DAG, from the same table."""

from __future__ import annotations

from typing import Any, TypedDict

from trainwright.jobs.request.setting import Setting, settings_of
from trainwright.jobs.state.identity import new_run_id
from trainwright.steps.fine_tuning_defaults import GPU, default_exports, default_workspace, gpus_of_nodes, without_gpu
from trainwright.steps.requests import FineTuning
from trainwright.ui.call import Call, Json

SECTIONS = ("Data", "Model", "Training", "Export", "Evaluation", "Run", "Credentials")
PHASES = ("training", "data", "evaluation")
"""Structures with all other settings, last in their sections."""
SECRETS = (
    Setting("store_secret", "text", "", "Credentials", "Secret with credentials of the object store, for pods. Empty: none."),
    Setting("hub_secret", "text", "", "Credentials", "Secret with HF_TOKEN, for pods. Empty: none."),
)
"""Fields of the pipeline that name Secrets; a DAG has connections instead."""


class Field(TypedDict):
    """`kind` is text, integer, number, flag or object; `initial` is what the form begins with."""

    name: str
    kind: str
    section: str
    description: str
    example: str
    choices: list[str]
    required: bool
    initial: Any


def settings() -> list[Setting]:
    """Return the settings of the form: first what is required, then by section."""
    found = [*settings_of(FineTuning).values(), *SECRETS]
    return sorted(found, key=lambda one: (one.default is not ..., SECTIONS.index(one.section), one.name in PHASES))


def show_form(call: Call) -> Json:
    """Return the fields, with what suits this cluster filled in. Raises ApiError."""
    cluster = call.session.cluster
    is_here = call.page.may_read_files and cluster.is_embedded()
    initial: Json = {"workspace": default_workspace(is_here=is_here)}
    if call.page.may_read_files:
        initial["export_uri"] = call.page.new_exports or default_exports(is_here=False)
    gpus = gpus_of_nodes(cluster)
    if gpus:
        initial["resources_per_node"] = {GPU: gpus}
    elif gpus == 0:
        initial["training"] = without_gpu({})
    return {
        "fields": [_field(one, initial) for one in settings()],
        "sections": list(SECTIONS),
        "run": new_run_id(),
        "namespace": cluster.default_namespace,
        "mayLaunch": call.page.launches is not None,
    }


def _field(one: Setting, initial: Json) -> Field:
    default = None if one.default is ... else one.default
    return Field(
        name=one.name,
        kind=one.kind,
        section=one.section,
        description=one.description,
        example=one.example,
        choices=list(one.choices),
        required=one.default is ...,
        initial=initial.get(one.name, default),
    )
