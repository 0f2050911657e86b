"""Shapes of TrainJob, TrainingRuntime and ClusterTrainingRuntime (trainer.kubeflow.org/v1alpha1, Trainer 2.3)."""

from __future__ import annotations

from trainwright.api import names
from trainwright.api.jobset_schema import JOBSET_SPEC
from trainwright.api.schema import Flag, Mapping, Record, Sequence, Shape, Text, Whole
from trainwright.api.workload_schema import ANY, ENV, METADATA, RESOURCES, kind_shape

_URI = Text(at_most=2048, pattern=r"^$|^[A-Za-z][A-Za-z0-9+.-]*://.+$", message="storageUri must be a URI such as hf://org/name")
_INITIALIZER = Record({"storageUri": _URI, "env": ENV, "secretRef": Record({"name": Text()})})
_WORDS = Sequence(Text(at_most=1048576), at_most=128)
_TRAINER = Record(
    {
        "image": Text(at_most=500),
        "command": _WORDS,
        "args": _WORDS,
        "env": Sequence(ENV.item, at_most=128, key="name"),
        "numNodes": Whole(0),
        "resourcesPerNode": RESOURCES,
        "numProcPerNode": Whole(1),
    },
    immutable=True,
)
_CONTAINER_PATCH = Sequence(
    Record(
        {
            "name": Text(1, 253),
            "env": Sequence(ENV.item, at_most=128, key="name"),
            "volumeMounts": Sequence(ANY, at_most=128, key="name"),
            "securityContext": ANY,
        },
        ("name",),
    ),
    at_most=64,
    key="name",
    immutable=True,
)
_POD_PATCH = Record(
    {
        "serviceAccountName": Text(at_most=253, immutable=True),
        "volumes": Sequence(ANY, at_most=128, key="name", immutable=True),
        "initContainers": _CONTAINER_PATCH,
        "containers": _CONTAINER_PATCH,
        "imagePullSecrets": Sequence(ANY, at_most=64, immutable=True),
        "securityContext": Record(open=True, immutable=True),
        "terminationGracePeriodSeconds": Whole(0, 2**63 - 1, immutable=True),
        "nodeSelector": Mapping(Text()),
        "affinity": ANY,
        "tolerations": Sequence(ANY, at_most=128),
        "schedulingGates": Sequence(ANY, at_most=16),
    }
)
_TEMPLATE_PATCH = Record({"metadata": METADATA, "spec": Record({"template": Record({"metadata": METADATA, "spec": _POD_PATCH})})})
_RUNTIME_PATCH = Record(
    {
        "manager": Text(1, 253),
        "time": ANY,
        "trainingRuntimeSpec": Record(
            {
                "template": Record(
                    {
                        "metadata": METADATA,
                        "spec": Record(
                            {
                                "replicatedJobs": Sequence(
                                    Record({"name": Text(1, 253), "template": _TEMPLATE_PATCH}, ("name",)),
                                    at_most=100,
                                    key="name",
                                )
                            }
                        ),
                    }
                )
            }
        ),
    },
    ("manager",),
)
TRAINJOB_SPEC = Record(
    {
        "runtimeRef": Record(
            {
                "name": Text(1, 253),
                "apiGroup": Text(at_most=253, default="trainer.kubeflow.org"),
                "kind": Text(at_most=253, default="ClusterTrainingRuntime"),
            },
            ("name",),
            immutable=True,
        ),
        "initializer": Record({"dataset": _INITIALIZER, "model": _INITIALIZER}, immutable=True),
        "trainer": _TRAINER,
        "runtimePatches": Sequence(_RUNTIME_PATCH, at_most=16, key="manager"),
        "suspend": Flag(default=False),
        "activeDeadlineSeconds": Whole(1, 2**63 - 1, immutable=True),
        "managedBy": Text(
            at_most=253,
            one_of=(names.TRAINJOB_CONTROLLER, names.MULTIKUEUE_CONTROLLER),
            default=names.TRAINJOB_CONTROLLER,
            immutable=True,
        ),
    },
    ("runtimeRef",),
)
_TRAINER_STATUS = Record(
    {
        "progressPercentage": Whole(0, 100),
        "estimatedRemainingSeconds": Whole(0),
        "metrics": Sequence(Record({"name": Text(1, 64), "value": Text(1, 64)}, ("name", "value")), at_most=256),
        "lastUpdatedTime": Text(at_least=1),
    },
    ("lastUpdatedTime",),
)
TRAINJOB = kind_shape(TRAINJOB_SPEC, status=Record({"trainerStatus": _TRAINER_STATUS}, open=True))

_POLICIES = ("torch", "mpi", "jax", "xgboost", "flux")
_ML_POLICY = Record(
    {
        "numNodes": Whole(),
        "torch": Record(
            {
                "envInjection": Record(
                    {
                        "targets": Sequence(
                            Record(
                                {
                                    "jobName": Text(1, 253),
                                    "containerNames": Sequence(
                                        Text(1, 63, pattern="^(?!node$)", message="must not contain node"), 1, 8
                                    ),
                                },
                                ("jobName", "containerNames"),
                            ),
                            at_least=1,
                            at_most=16,
                            key="jobName",
                        )
                    },
                    ("targets",),
                )
            }
        ),
        "mpi": Record(
            {
                "numProcPerNode": Whole(1, default=1),
                "mpiImplementation": Text(one_of=("OpenMPI",), default="OpenMPI"),
                "sshAuthMountPath": Text(at_most=4096, default="/root/.ssh"),
                "runLauncherAsNode": Flag(default=False),
            }
        ),
        "jax": Record(),
        "xgboost": Record(),
        "flux": Record({"numProcPerNode": Whole(1, default=1)}),
    },
    at_most_one=_POLICIES,
)
_POD_GROUP_POLICY = Record(
    {
        "coscheduling": Record({"scheduleTimeoutSeconds": Whole(default=60)}),
        "volcano": Record(
            {
                "networkTopology": Record(
                    {"mode": Text(one_of=("hard", "soft"), default="hard"), "highestTierAllowed": Whole(default=1)}
                )
            }
        ),
    }
)
RUNTIME_SPEC: Shape = Record(
    {
        "mlPolicy": _ML_POLICY,
        "podGroupPolicy": _POD_GROUP_POLICY,
        "template": Record({"metadata": METADATA, "spec": JOBSET_SPEC}, at_least_fields=1),
    },
    at_least_fields=1,
)
RUNTIME = kind_shape(RUNTIME_SPEC, required=())
