"""The endpoints of the form, and of the fine-tunings that it has started. A fine-tuning can be written as text instead: manifests
for kubectl, a run of the pipeline, or a DAG.
"""

from __future__ import annotations

import pprint

from trainwright.api.errors import Forbidden
from trainwright.jobs.request.setting import settings_of
from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.identity import COMMAND_LINE, Identity
from trainwright.jobs.submit.plan import applicable_manifests
from trainwright.steps.requests import FineTuning
from trainwright.text.foreign_texts import one_line
from trainwright.text.yaml_writer import to_yaml
from trainwright.ui.call import Call, Endpoint, Json
from trainwright.ui.form.check import SECRETS, Checked, check_form, checked, parameters_of, show_form
from trainwright.ui.launches.launches import Launches

_MAX_RUN = 128
_WIDTH = 100
_MAX_RUN_CHARACTERS = 200
_CODE = {
    "kfp": '''"""Runs the pipeline `finetune`: KFP_HOST is the address of Kubeflow Pipelines."""

import os

from kfp import Client

from trainwright.pipelines import finetune

ARGUMENTS = {arguments}

if __name__ == "__main__":
    run = Client(host=os.environ["KFP_HOST"]).create_run_from_pipeline_func(finetune, arguments=ARGUMENTS)
    print(run.run_id)
''',
    "airflow": '''"""A DAG that fine-tunes with these values, which people can change in its form: a file for the DAGs folder."""

from airflow.sdk import DAG

from trainwright.example_dags.chain import add_promotion, add_registration, every_task
from trainwright.example_dags.form import form, parameters, slim
from trainwright.operators.finetuning import Chain

VALUES = {arguments}

fields = form("FineTuning")
for name, value in VALUES.items():
    fields[name].value = value

with DAG("finetune", schedule=None, catchup=False, params=fields, render_template_as_native_obj=True, tags=["trainwright"]) as dag:
    chain = Chain(parameters("FineTuning"), every=every_task())
    chain.add_steps()
    add_promotion(chain)
    add_registration(chain)
    slim(dag)
''',
}


def launch(call: Call) -> Json:
    """Start a run of `{parameters, run, namespace}`. Raises ValueError with the problems, AlreadyExists, Forbidden."""
    launches = _launches(call)
    found = checked(parameters_of(call), looks_at_files=call.page.may_read_files)
    if found.request is None:  # a text of invalid settings would only fail later
        raise ValueError("; ".join(map(str, found.problems)))
    run = call.text("run", limit=_MAX_RUN)
    return {"launch": launches.launch(run, call.text("namespace"), found.request.given_values())}


def _launches(call: Call) -> Launches:
    if call.page.launches is None:
        raise Forbidden("this page starts nothing; take the YAML or the code that it writes")
    return call.page.launches


def show_launches(call: Call) -> Json:
    return {"launches": call.page.launches.list() if call.page.launches is not None else []}


def show_launch(call: Call) -> Json:
    return {"launch": _launches(call).get(call.path["run"])}


def resume_launch(call: Call) -> Json:
    return {"launch": _launches(call).resume(call.path["run"])}


def stop_launch(call: Call) -> Json:
    return {"launch": _launches(call).stop(call.path["run"])}


def write_form(call: Call) -> Json:
    """Return the text for `{parameters, as, run, namespace}`, or the problems of the parameters.

    Raises ValueError, ApiError, RuntimeNotFound.
    """
    found = checked(parameters_of(call), looks_at_files=call.page.may_read_files)
    if found.request is None:
        return {"text": "", "problems": [{"field": each.field, "message": each.message} for each in found.problems]}
    form = call.text("as")
    if form == "yaml":
        run = call.text("run", limit=_MAX_RUN_CHARACTERS)
        return {"text": _manifests(call, found, run), "problems": [], "file": f"{run}.yaml"}
    if form not in _CODE:
        raise ValueError("as: expected yaml, kfp or airflow")
    return {"text": code_of(found, form), "problems": [], "file": f"finetune_{form}.py"}


def _manifests(call: Call, found: Checked, run: str) -> str:
    assert found.request is not None
    assert found.run is not None
    request = found.request
    train = TrainRequest.parse(
        {
            "dataset_uri": request.dataset_uri,
            "model_uri": request.model_uri,
            "workspace": request.workspace,
            "export_uri": request.export_uri,
        },
        rest=found.run.training,
    )
    identity = Identity(COMMAND_LINE, run, "train")
    namespace = call.text("namespace") if call.body.get("namespace") else call.namespace
    objects, warnings = applicable_manifests(train, identity, namespace, call.session.cluster)
    head = [
        "# The training of a fine-tuning, for `kubectl create -f`. Its initializers prepare dataset and model.",
        "# The page, a pipeline or a DAG also reports on the data, exports, evaluates, promotes and registers.",
        *(f"# warning: {one_line(warning)}" for warning in warnings),
    ]
    return "\n".join(head) + "\n" + "---\n".join(to_yaml(each) for each in objects)


ROUTES = (
    Endpoint("GET", "/form", show_form),
    Endpoint("POST", "/form/check", check_form),
    Endpoint("POST", "/form/write", write_form),
    Endpoint("GET", "/launches", show_launches),
    Endpoint("POST", "/launches", launch),
    Endpoint("GET", "/launches/{run}", show_launch),
    Endpoint("POST", "/launches/{run}/resume", resume_launch),
    Endpoint("POST", "/launches/{run}/stop", stop_launch),
)


def code_of(found: Checked, form: str) -> str:
    """Return the program for `kfp` or `airflow` with the values that differ from the defaults."""
    assert found.request is not None
    defaults = {name: one.default for name, one in settings_of(FineTuning).items()}
    changed = {name: value for name, value in found.request.given_values().items() if value != defaults[name]}
    if form == "kfp":
        assert found.run is not None
        others = found.run.training.secrets.given_values()
        secrets = {one.name: others.pop(one.name, "") for one in SECRETS}
        training = {name: value for name, value in changed.pop("training", {}).items() if name != "secrets"}
        training |= {"secrets": others} if others else {}
        # The defaults of the pipeline name Secrets, and pods would wait for them.
        changed |= {**({"training": training} if training else {}), **secrets}
    return _CODE[form].format(arguments=pprint.pformat(changed, width=_WIDTH, sort_dicts=False))
