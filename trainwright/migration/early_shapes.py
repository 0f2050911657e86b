"""What early TrainJobs and runtimes may look like, as far as their migration reads them; the result is judged by admission.

Source: the types of kubeflow.org/v2alpha1, and of trainer.kubeflow.org/v1alpha1 in Trainer 2.0 and 2.1.
"""

from __future__ import annotations

from trainwright.api.shapes import INT_OR_TEXT, TEXT, TEXT_MAP, Record, Sequence, Shape, Text, Whole

_NAME = Text(1)
_METADATA = Record({"name": TEXT, "generateName": TEXT, "namespace": TEXT}, open=True)
_REFERENCE = Record({"name": _NAME, "apiGroup": TEXT, "kind": TEXT}, open=True)
_SOURCE = Record({"storageUri": TEXT, "secretRef": Record({"name": TEXT, "namespace": TEXT}, open=True)}, open=True)
_CONTAINERS = Sequence(Record({"name": _NAME}, ("name",), open=True))
_POD_OVERRIDE: dict[str, Shape] = {"containers": _CONTAINERS, "initContainers": _CONTAINERS}
_TARGETS: dict[str, Shape] = {
    "targetJobs": Sequence(Record({"name": _NAME}, ("name",), open=True)),
    "metadata": Record(open=True),
}
_TRAINER: dict[str, Shape] = {
    "numNodes": Whole(),
    "numProcPerNode": INT_OR_TEXT,
}
EARLY_TRAINJOB = Record(
    {
        "metadata": _METADATA,
        "spec": Record(
            {
                **_TRAINER,
                "runtimeRef": _REFERENCE,
                "trainingRuntimeRef": _REFERENCE,
                "trainer": Record(_TRAINER, open=True),
                "datasetConfig": _SOURCE,
                "modelConfig": Record({**_SOURCE.fields, "input": _SOURCE, "output": Record(open=True)}, open=True),
                "initializer": Record({"dataset": _SOURCE, "model": _SOURCE}, open=True),
                "podSpecOverrides": Sequence(Record({**_TARGETS, **_POD_OVERRIDE}, open=True)),
                "podTemplateOverrides": Sequence(Record({**_TARGETS, "spec": Record(_POD_OVERRIDE, open=True)}, open=True)),
                "labels": TEXT_MAP,
                "annotations": TEXT_MAP,
                "managedBy": TEXT,
                "runtimePatches": Sequence(Record(open=True)),
            },
            open=True,
        ),
    },
    ("spec",),
    open=True,
)
_POD = Record(
    {"metadata": Record(open=True), "spec": Record({"containers": _CONTAINERS, "initContainers": _CONTAINERS}, open=True)},
    ("spec",),
    open=True,
)
_JOB = Record(
    {
        "metadata": Record({"labels": TEXT_MAP}, open=True),
        "spec": Record({"template": _POD}, ("template",), open=True),
    },
    ("spec",),
    open=True,
)
_NAMES = Sequence(TEXT)
_JOBSET = Record(
    {
        "replicatedJobs": Sequence(
            Record(
                {"name": _NAME, "template": _JOB, "dependsOn": Sequence(Record({"name": TEXT}, ("name",), open=True))},
                ("name", "template"),
                open=True,
            )
        ),
        "successPolicy": Record({"targetReplicatedJobs": _NAMES}, open=True),
        "failurePolicy": Record({"rules": Sequence(Record({"targetReplicatedJobs": _NAMES}, open=True))}, open=True),
        "coordinator": Record({"replicatedJob": TEXT}, open=True),
    },
    open=True,
)
EARLY_RUNTIME = Record(
    {
        "metadata": _METADATA,
        "spec": Record(
            {
                "mlPolicy": Record(
                    {
                        "torch": Record({"numProcPerNode": INT_OR_TEXT, "elasticPolicy": Record(open=True)}, open=True),
                        "mpi": Record(open=True),
                    },
                    open=True,
                ),
                "template": Record({"metadata": Record(open=True), "spec": _JOBSET}, open=True),
            },
            open=True,
        ),
    },
    ("spec",),
    open=True,
)
