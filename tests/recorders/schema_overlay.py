"""What published schemas do not say of the kinds, and where ours differ on purpose: read by `published_schemas`."""

from __future__ import annotations

from typing import Any

SCALARS = {"Quantity": "quantity", "IntOrString": "int-or-string", "Time": "date-time", "MicroTime": "date-time"}
"""Types of Go that encode themselves."""
UNREAD = ("FieldsV1", "RawExtension")
"""Types whose values the server stores as they are."""

_RUNTIME = {
    "spec": "TrainingRuntimeSpec",
    "spec.mlPolicy": "MLPolicy",
    "spec.mlPolicy.flux": "FluxMLPolicySource",
    "spec.mlPolicy.jax": "JAXMLPolicySource",
    "spec.mlPolicy.mpi": "MPIMLPolicySource",
    "spec.mlPolicy.torch": "TorchMLPolicySource",
    "spec.mlPolicy.torch.envInjection": "EnvInjection",
    "spec.mlPolicy.torch.envInjection.targets": "EnvInjectionTarget",
    "spec.mlPolicy.xgboost": "XGBoostMLPolicySource",
    "spec.podGroupPolicy": "PodGroupPolicy",
    "spec.podGroupPolicy.coscheduling": "CoschedulingPodGroupPolicySource",
    "spec.podGroupPolicy.volcano": "VolcanoPodGroupPolicySource",
    "spec.podGroupPolicy.volcano.networkTopology": "NetworkTopologySpec",
    "spec.template": "JobSetTemplateSpec",
    "spec.template.metadata": "ObjectMeta",
    # Trainer allows negative numbers of replicas in a runtime, which JobSet refuses.
    "spec.template.spec": "runtime/JobSetSpec",
    "spec.template.spec.replicatedJobs": "runtime/ReplicatedJob",
}
_JOBSET = {
    "coordinator": "Coordinator",
    "failurePolicy": "FailurePolicy",
    "failurePolicy.rules": "FailurePolicyRule",
    "network": "Network",
    "replicatedJobs": "ReplicatedJob",
    "replicatedJobs.dependsOn": "DependsOn",
    "replicatedJobs.template": "JobTemplateSpec",
    "startupPolicy": "StartupPolicy",
    "successPolicy": "jobset/SuccessPolicy",
    "volumeClaimPolicies": "VolumeClaimPolicy",
    "volumeClaimPolicies.retentionPolicy": "VolumeRetentionPolicy",
    "volumeClaimPolicies.templates": "PersistentVolumeClaim",
    "volumeClaimPolicies.templates.metadata": "ObjectMeta",
}
_PATCH = "TrainJob.spec.runtimePatches.trainingRuntimeSpec"
_JOB_PATCH = f"{_PATCH}.template.spec.replicatedJobs.template"
_POD_PATCH = f"{_JOB_PATCH}.spec.template.spec"
CRD_TYPES = {
    **{f"{kind}.{path}": name for kind in ("TrainingRuntime", "ClusterTrainingRuntime") for path, name in _RUNTIME.items()},
    **{
        f"{spec}.{path}": name
        for spec in ("TrainingRuntime.spec.template.spec", "ClusterTrainingRuntime.spec.template.spec", "JobSet.spec")
        for path, name in _JOBSET.items()
        if not (path == "replicatedJobs" and spec != "JobSet.spec")
    },
    "JobSet.spec": "JobSetSpec",
    "JobSet.status": "JobSetStatus",
    "JobSet.status.conditions": "Condition",
    "JobSet.status.replicatedJobsStatus": "ReplicatedJobStatus",
    "TrainJob.spec": "TrainJobSpec",
    "TrainJob.spec.initializer": "Initializer",
    "TrainJob.spec.initializer.dataset": "DatasetInitializer",
    "TrainJob.spec.initializer.dataset.env": "EnvVar",
    "TrainJob.spec.initializer.dataset.secretRef": "LocalObjectReference",
    "TrainJob.spec.initializer.model": "ModelInitializer",
    "TrainJob.spec.initializer.model.env": "EnvVar",
    "TrainJob.spec.initializer.model.secretRef": "LocalObjectReference",
    "TrainJob.spec.runtimePatches": "RuntimePatch",
    _PATCH: "TrainingRuntimeSpecPatch",
    f"{_PATCH}.template": "JobSetTemplatePatch",
    f"{_PATCH}.template.metadata": "ObjectMeta",
    f"{_PATCH}.template.spec": "JobSetSpecPatch",
    f"{_PATCH}.template.spec.replicatedJobs": "ReplicatedJobPatch",
    _JOB_PATCH: "JobTemplatePatch",
    f"{_JOB_PATCH}.metadata": "ObjectMeta",
    f"{_JOB_PATCH}.spec": "JobSpecPatch",
    f"{_JOB_PATCH}.spec.template": "PodTemplatePatch",
    f"{_JOB_PATCH}.spec.template.metadata": "ObjectMeta",
    _POD_PATCH: "PodSpecPatch",
    f"{_POD_PATCH}.affinity": "Affinity",
    **{
        f"{_POD_PATCH}.{containers}{part}": name
        for containers in ("containers", "initContainers")
        for part, name in (
            ("", "ContainerPatch"),
            (".env", "EnvVar"),
            (".securityContext", "SecurityContext"),
            (".volumeMounts", "VolumeMount"),
        )
    },
    f"{_POD_PATCH}.imagePullSecrets": "LocalObjectReference",
    f"{_POD_PATCH}.schedulingGates": "PodSchedulingGate",
    f"{_POD_PATCH}.securityContext": "PodSecurityContext",
    f"{_POD_PATCH}.tolerations": "Toleration",
    f"{_POD_PATCH}.volumes": "Volume",
    "TrainJob.spec.runtimeRef": "RuntimeRef",
    "TrainJob.spec.trainer": "Trainer",
    "TrainJob.spec.trainer.env": "EnvVar",
    "TrainJob.spec.trainer.resourcesPerNode": "ResourceRequirements",
    "TrainJob.status": "TrainJobStatus",
    "TrainJob.status.conditions": "Condition",
    "TrainJob.status.jobsStatus": "trainer/JobStatus",
    "TrainJob.status.trainerStatus": "TrainerStatus",
    "TrainJob.status.trainerStatus.metrics": "Metric",
}
"""The types of structs of CustomResourceDefinitions, which publish no names: error messages contain them. From a type of Kubernetes
on, the names of its parts are published. A prefix tells types of one name apart."""

MERGE_KEYS = {
    ("JobSetSpec", "replicatedJobs"): "name",
    ("ReplicatedJob", "dependsOn"): "name",
    ("JobSetStatus", "conditions"): "type",
    ("JobSetStatus", "replicatedJobsStatus"): "name",
}
"""Keys by which JobSet's types merge lists: only those of Kubernetes are published."""

DEFAULTS: dict[tuple[str, str], Any] = {
    ("ServicePort", "protocol"): "TCP",
    ("NetworkPolicyPort", "protocol"): "TCP",
    ("RoleRef", "apiGroup"): "rbac.authorization.k8s.io",
    ("DeploymentSpec", "progressDeadlineSeconds"): 600,
    ("DeploymentSpec", "replicas"): 1,
    ("DeploymentSpec", "revisionHistoryLimit"): 10,
}
"""Defaults of built-in types. CustomResourceDefinitions publish those of pods; schemas of Kubernetes publish none."""

WRITTEN = {
    "Container": ["resources"],
    "EphemeralContainer": ["resources"],
    "JobTemplateSpec": ["metadata"],
    "PodTemplateSpec": ["metadata"],
}
"""Optional fields that encoding writes as an empty object, as recordings show."""
