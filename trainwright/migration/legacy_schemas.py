"""Schemas of legacy TrainJobs and runtimes, for the fields that the migration reads. Admission validates the result.

Source: the types of kubeflow.org/v2alpha1, and of trainer.kubeflow.org/v1alpha1 in Trainer 2.0 and 2.1.
"""

from __future__ import annotations

from trainwright.api.schema.types import INT_OR_STRING, STRING, STRING_MAP, Integer, ListOf, Schema, String, Struct

_NAME = String(1)
_METADATA = Struct({"name": STRING, "generateName": STRING, "namespace": STRING}, open=True)
_REFERENCE = Struct({"name": _NAME, "apiGroup": STRING, "kind": STRING}, open=True)
_SOURCE = Struct({"storageUri": STRING, "secretRef": Struct({"name": STRING, "namespace": STRING}, open=True)}, open=True)
_CONTAINERS = ListOf(Struct({"name": _NAME}, ("name",), open=True))
_POD_OVERRIDE: dict[str, Schema] = {"containers": _CONTAINERS, "initContainers": _CONTAINERS}
_TARGETS: dict[str, Schema] = {
    "targetJobs": ListOf(Struct({"name": _NAME}, ("name",), open=True)),
    "metadata": Struct(open=True),
}
_TRAINER: dict[str, Schema] = {
    "numNodes": Integer(),
    "numProcPerNode": INT_OR_STRING,
}
LEGACY_TRAINJOB = Struct(
    {
        "metadata": _METADATA,
        "spec": Struct(
            {
                **_TRAINER,
                "runtimeRef": _REFERENCE,
                "trainingRuntimeRef": _REFERENCE,
                "trainer": Struct(_TRAINER, open=True),
                "datasetConfig": _SOURCE,
                "modelConfig": Struct({**_SOURCE.fields, "input": _SOURCE, "output": Struct(open=True)}, open=True),
                "initializer": Struct({"dataset": _SOURCE, "model": _SOURCE}, open=True),
                "podSpecOverrides": ListOf(Struct({**_TARGETS, **_POD_OVERRIDE}, open=True)),
                "podTemplateOverrides": ListOf(Struct({**_TARGETS, "spec": Struct(_POD_OVERRIDE, open=True)}, open=True)),
                "labels": STRING_MAP,
                "annotations": STRING_MAP,
                "managedBy": STRING,
                "runtimePatches": ListOf(Struct(open=True)),
            },
            open=True,
        ),
    },
    ("spec",),
    open=True,
)
_POD = Struct(
    {"metadata": Struct(open=True), "spec": Struct({"containers": _CONTAINERS, "initContainers": _CONTAINERS}, open=True)},
    ("spec",),
    open=True,
)
_JOB = Struct(
    {
        "metadata": Struct({"labels": STRING_MAP}, open=True),
        "spec": Struct({"template": _POD}, ("template",), open=True),
    },
    ("spec",),
    open=True,
)
_NAMES = ListOf(STRING)
_JOBSET = Struct(
    {
        "replicatedJobs": ListOf(
            Struct(
                {"name": _NAME, "template": _JOB, "dependsOn": ListOf(Struct({"name": STRING}, ("name",), open=True))},
                ("name", "template"),
                open=True,
            )
        ),
        "successPolicy": Struct({"targetReplicatedJobs": _NAMES}, open=True),
        "failurePolicy": Struct({"rules": ListOf(Struct({"targetReplicatedJobs": _NAMES}, open=True))}, open=True),
        "coordinator": Struct({"replicatedJob": STRING}, open=True),
    },
    open=True,
)
LEGACY_RUNTIME = Struct(
    {
        "metadata": _METADATA,
        "spec": Struct(
            {
                "mlPolicy": Struct(
                    {
                        "torch": Struct({"numProcPerNode": INT_OR_STRING, "elasticPolicy": Struct(open=True)}, open=True),
                        "mpi": Struct(open=True),
                    },
                    open=True,
                ),
                "template": Struct({"metadata": Struct(open=True), "spec": _JOBSET}, open=True),
            },
            open=True,
        ),
    },
    ("spec",),
    open=True,
)
