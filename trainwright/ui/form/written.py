"""Writes a fine-tuning of the form as text: manifests for kubectl, a run of the pipeline, or a DAG."""

from __future__ import annotations

import pprint
from typing import Any

from trainwright.jobs.request.train_request import TrainRequest
from trainwright.jobs.state.identity import Identity
from trainwright.jobs.state.run_ids import COMMAND_LINE
from trainwright.jobs.submit.preview import applicable_manifests
from trainwright.steps.parameter_tables import STEP_PARAMETERS
from trainwright.steps.phases import JOB_RETRIES
from trainwright.text.one_line import one_line
from trainwright.text.yaml_writer import to_yaml
from trainwright.ui.call import Call, Json
from trainwright.ui.form.check import Checked, checked, parameters_of
from trainwright.ui.form.fields import FORM, SECRETS

_WIDTH = 100
_MAX_RUN = 200
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

from trainwright.example_dags.chain import every_task, promotion, registration, training_chain
from trainwright.example_dags.form import form, parameters, slim

VALUES = {arguments}

fields = form("FineTuning")
for name, value in VALUES.items():
    fields[name].value = value

with DAG("finetune", schedule=None, catchup=False, params=fields, render_template_as_native_obj=True, tags=["trainwright"]) as dag:
    given = parameters("FineTuning")
    chain = training_chain(given, every=every_task())
    chain.in_order()
    chain.evaluation >> [promotion(given), registration(given)]
    slim(dag)
''',
}


def write_form(call: Call) -> Json:
    """Return the text for `{parameters, as, run, namespace}`, or the problems of the parameters.

    Raises ValueError, ApiError, RuntimeNotFound.
    """
    found = checked(parameters_of(call), looks_at_files=call.page.may_read_files)
    if found.request is None:
        return {"text": "", "problems": [{"field": each.field, "message": each.message} for each in found.problems]}
    form = call.text("as")
    if form == "yaml":
        run = call.text("run", limit=_MAX_RUN)
        return {"text": _manifests(call, found, run), "problems": [], "file": f"{run}.yaml"}
    if form not in _CODE:
        raise ValueError("as: expected yaml, kfp or airflow")
    return {"text": code_of(found, form), "problems": [], "file": f"finetune_{form}.py"}


def code_of(found: Checked, form: str) -> str:
    """Return the program for `kfp` or `airflow` with the values that differ from the defaults."""
    assert found.request is not None
    given = found.request.model_dump()
    training = dict(given["training"])
    secrets = {one.name: training.pop(one.name) for one in SECRETS if form == "kfp" and one.name in training}
    given["training"] = training
    defaults = {name: one.default for name, one in STEP_PARAMETERS[FORM].items()}
    changed: dict[str, Any] = {name: value for name, value in given.items() if value != defaults[name]}
    if form == "kfp":  # the defaults of the pipeline name Secrets, and pods would wait for them
        changed |= {one.name: secrets.get(one.name, "") for one in SECRETS}
    return _CODE[form].format(arguments=pprint.pformat(changed, width=_WIDTH, sort_dicts=False))


def _manifests(call: Call, found: Checked, run: str) -> str:
    assert found.request is not None
    assert found.phases is not None
    request = found.request
    settings = {name: value for name, value in found.phases.training.items() if name != JOB_RETRIES}
    train = TrainRequest.from_parameters(
        {
            **settings,
            "dataset_uri": request.dataset_uri,
            "model_uri": request.model_uri,
            "workspace": request.workspace,
            "export_uri": request.export_uri,
        }
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
