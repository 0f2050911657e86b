"""The cluster on which scenes are played: one that `trainwright up` starts, or any other that a kubeconfig leads to.

All that is made carries the label of the run. Namespaces that this run has not made are only read, except for one Role and its
binding in Trainer's namespace, which `trainwright rbac` asks for.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from support.cluster_under_test import kubeconfig_of_account
from support.waiting import eventually

from acceptance.rights import Obj, own_manifests
from acceptance.told import environment
from trainwright.runtimes.bundled import bundled_runtime
from trainwright.runtimes.image import DEFAULT_IMAGE, ImageName, image

LABEL = "trainwright.dev/acceptance"
ACCOUNT = "runner"
CLAIM = "workspace"
KEEPER = "keeper"
"""A pod that mounts the claim, to look into it and to lay something down."""
TRAINER_NAMESPACE, TRAINER_LEASE = "kubeflow-system", "trainer.kubeflow.org"
HOLDER = "somebody-else"
TRAINWRIGHT = (sys.executable, "-P", "-m", "trainwright.cli")
RUNTIMES = ("torch-distributed", "trl-sft", "causal-lm-evaluation")
"""Bundled runtimes that every namespace gets as its own, with the images of the suite."""
_READS = "print('rows:', *open('/workspace/dataset/train.jsonl').read().splitlines())"
_ABSENT = "images:\n- {image: 'registry.invalid/*', absent: true}\n- {image: 'docker.io/local/none*', absent: true}\n"


@dataclass(frozen=True)
class Options:
    """How the suite was asked to play; `make acceptance` sets the variables.

    Attributes:
        kubeconfig: The cluster's; empty for the embedded one.
        image: Images that its nodes can pull, with `{image}` for launcher and trainer.
        kfp_host: Address of a Kubeflow Pipelines API.
        airflow: Whether DAGs are to be run.
        storage_class: Of claims; empty for the cluster's default.
        access_mode: Of claims.
        restart: A shell command that restarts the API server; with the number of seconds for which it is to be gone as `$1`.
        lose_node: A shell command that stops the kubelet of the node `$1`, and one that starts it.
        find_node: The command that starts it again.
    """

    kubeconfig: str = ""
    image: str = ""
    kfp_host: str = ""
    airflow: bool = False
    storage_class: str = ""
    access_mode: str = "ReadWriteOnce"
    restart: str = ""
    lose_node: str = ""
    find_node: str = ""

    @classmethod
    def of_environment(cls) -> Options:
        def given(name: str) -> str:
            return os.environ.get(f"TRAINWRIGHT_ACCEPTANCE_{name}", "").strip()

        return cls(
            kubeconfig=given("KUBECONFIG"),
            image=given("IMAGE"),
            kfp_host=given("KFP_HOST"),
            airflow=given("AIRFLOW") in ("yes", "1", "true"),
            storage_class=given("STORAGE_CLASS"),
            access_mode=given("ACCESS_MODE") or "ReadWriteOnce",
            restart=given("RESTART"),
            lose_node=given("LOSE_NODE"),
            find_node=given("FIND_NODE"),
        )


@dataclass(frozen=True)
class Namespace:
    """A namespace that the run has made, and the kubeconfig of its account."""

    name: str
    kubeconfig: Path


class ClusterUnderTest:
    """A cluster as its administrator sees it. `run` marks all that is made; `folder` has the kubeconfigs."""

    def __init__(self, admin: Path, run: str, folder: Path, options: Options):
        self.admin, self.run, self.folder, self.options = admin, run, folder, options
        self._numbers = itertools.count(1)
        self._made: set[str] = set()
        self._has_keeper: set[str] = set()

    def image(self, name: ImageName) -> str:
        return image(name, self.options.image or DEFAULT_IMAGE)

    def kubectl(
        self, *words: str, text: str | None = None, check: bool = True, seconds: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator. Raises AssertionError with its words if it fails, unless not to `check`."""
        command = ["kubectl", "--kubeconfig", str(self.admin), *words]
        done = subprocess.run(
            command, input=text, env=environment(), capture_output=True, text=True, timeout=seconds, check=False
        )
        assert not check or done.returncode == 0, f"kubectl {' '.join(words)[:300]}: {done.stdout}{done.stderr}"
        return done

    def get(self, *words: str) -> Any:
        """What `kubectl get ... -o json` prints."""
        return json.loads(self.kubectl("get", *words, "-o", "json").stdout)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or change objects, in namespaces of this run or of the whole cluster."""
        objects = tuple(
            {**obj, "metadata": {**obj["metadata"], "labels": {**(obj["metadata"].get("labels") or {}), **self.labels}}}
            for obj in objects
        )
        for obj in objects:
            namespace = obj["metadata"].get("namespace", "")
            assert not namespace or namespace in self._made or self._is_lease_role(obj), f"not made by this run: {namespace}"
        self.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def make_namespace(self, labels: Mapping[str, str] | None = None, mode: str = "trainjob") -> Namespace:
        """A new namespace with an account that has exactly the rights that `trainwright rbac` prints, a claim, and runtimes."""
        name = f"trainwright-{self.run}-{os.environ.get('PYTEST_XDIST_WORKER', 'gw')}-{next(self._numbers)}"
        metadata = {"name": name, "labels": {**self.labels, **(labels or {})}}
        self.kubectl("create", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
        self._made.add(name)
        eventually(lambda: self._has_account(name), 30, f"the account `default` of {name}")
        self.apply(self._claim(name), *self._runtimes(name))
        return Namespace(name, self.make_account(name, ACCOUNT, self.printed_rights(name, ACCOUNT, mode)))

    def make_account(self, namespace: str, account: str, manifests: list[Obj]) -> Path:
        """A new account with these rights; returns its kubeconfig, with a token of the account."""
        own = own_manifests(manifests, f"{namespace}-{account}", self.labels, self._namespaces | self._made)
        self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata(account, namespace)}, *own)
        folder = self.folder / namespace
        folder.mkdir(exist_ok=True)
        path = kubeconfig_of_account(self.admin, folder, namespace, account)
        config = yaml.safe_load(path.read_text("utf-8"))
        config["contexts"][0]["context"]["namespace"] = namespace
        path.write_text(yaml.safe_dump(config), "utf-8")
        return path

    def printed_rights(self, namespace: str, account: str, mode: str = "trainjob") -> list[Obj]:
        """What `trainwright rbac` prints for an account."""
        words = ("rbac", "-n", namespace, "--service-account", account, "--mode", mode, "-o", "json")
        return list(json.loads(self._trainwright(*words))["items"])

    def keeper(self, namespace: str) -> str:
        """The name of the pod that looks into the namespace's claim; it runs."""
        if namespace not in self._has_keeper:
            container = {
                "name": KEEPER,
                "image": self.image("trainer"),
                "command": ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.2; done"],
                "volumeMounts": [{"name": "claim", "mountPath": "/claim"}],
            }
            spec = {
                "terminationGracePeriodSeconds": 2,
                "securityContext": {"fsGroup": 1000},
                "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": CLAIM}}],
                "containers": [container],
            }
            self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": self.metadata(KEEPER, namespace), "spec": spec})
            self.kubectl("wait", "--for=condition=Ready", f"pod/{KEEPER}", "-n", namespace, "--timeout=600s", seconds=620)
            self._has_keeper.add(namespace)
        return KEEPER

    def remove_namespace(self, namespace: str) -> None:
        """Begin to delete a namespace of this run with all that is in it."""
        assert namespace in self._made, f"not made by this run: {namespace}"
        self.kubectl("delete", "namespace", namespace, "--wait=false")

    def remove(self) -> None:
        """Delete all that this run has made, also in other processes."""
        selector = f"{LABEL}={self.run}"
        if TRAINER_NAMESPACE in self._namespaces:
            self.kubectl("delete", "role,rolebinding", "-n", TRAINER_NAMESPACE, "-l", selector)
        self.kubectl("delete", "clusterrole,clusterrolebinding,priorityclass", "-l", selector)
        self.kubectl("delete", "namespace", "-l", selector, "--timeout=300s", seconds=320)

    def why_no_restart(self) -> str:
        """Why the API server cannot be restarted; empty if it can."""
        return "" if self.options.restart else "no command that restarts the API server was given (RESTART=...)"

    @contextmanager
    def api_server_gone(self, seconds: float) -> Iterator[None]:
        """End the API server; it is back after so many seconds, when the block ends. What runs in pods goes on."""
        process = subprocess.Popen(["sh", "-c", self.options.restart, "restart", str(seconds)])
        try:
            yield
        finally:
            assert process.wait(600) == 0, self.options.restart
            eventually(
                lambda: self.kubectl("get", "--raw", "/readyz", check=False).returncode == 0, 120, "the API server is back"
            )

    def why_no_free_place(self) -> str:
        """Why no controller of ours can take the place of Trainer's manager here; empty if one can."""
        holder = self._manager()
        return f"Trainer's manager runs ({holder}): scale it to 0 to play this scene" if holder else ""

    def why_no_manager(self) -> str:
        """Why `managed_elsewhere` cannot be called; empty if it can."""
        return "" if self._manager() else "no manager of Trainer holds its Lease"

    def why_no_lease(self) -> str:
        """Why the suite may not hold Trainer's Lease itself; empty if it may."""
        return "Trainer's Lease on this cluster is not the suite's to hold"

    @contextmanager
    def place(self) -> Iterator[ClusterUnderTest]:
        """A cluster without an active controller of TrainJobs."""
        yield self

    @contextmanager
    def managed_elsewhere(self) -> Iterator[tuple[ClusterUnderTest, str]]:
        """A cluster where a manager of Trainer is active until the block ends, and the holder of its Lease."""
        yield self, self._manager()

    def _manager(self) -> str:
        """The holder of Trainer's Lease, if it has renewed it lately."""
        found = self.kubectl("get", "lease", TRAINER_LEASE, "-n", TRAINER_NAMESPACE, "-o", "json", check=False)
        if found.returncode:
            return ""
        spec = json.loads(found.stdout)["spec"]
        age = datetime.now(UTC) - datetime.fromisoformat(spec.get("renewTime") or "1970-01-01T00:00:00Z")
        return str(spec.get("holderIdentity") or "") if age < timedelta(minutes=2) else ""

    @property
    def labels(self) -> dict[str, str]:
        return {LABEL: self.run}

    def metadata(self, name: str, namespace: str) -> dict[str, Any]:
        return {"name": name, "namespace": namespace, "labels": self.labels}

    @cached_property
    def _namespaces(self) -> set[str]:
        return {obj["metadata"]["name"] for obj in self.get("namespaces")["items"]}

    def _has_account(self, namespace: str) -> bool:
        """Whether pods can be created: a cluster makes the account of a new namespace a moment later."""
        spec = {"containers": [{"name": "c", "image": self.image("launcher")}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked", "namespace": namespace}, "spec": spec}
        asked = self.kubectl("create", "--dry-run=server", "-f", "-", text=json.dumps(pod), check=False)
        return "serviceaccount" not in asked.stderr.lower()

    def _runtimes(self, namespace: str) -> Iterator[Obj]:
        for name in RUNTIMES:
            text = json.dumps(bundled_runtime(name, self.options.image or DEFAULT_IMAGE))
            runtime = json.loads(re.sub(r'"pytorch/pytorch:[^"]*"', json.dumps(self.image("trainer")), text))
            yield {**runtime, "kind": "TrainingRuntime", "metadata": {**runtime["metadata"], "namespace": namespace}}
            if name == "trl-sft":
                yield reading_runtime(runtime, self.image("launcher"), namespace)

    def _claim(self, namespace: str) -> Obj:
        spec = {"accessModes": [self.options.access_mode], "resources": {"requests": {"storage": "2Gi"}}}
        if self.options.storage_class:
            spec["storageClassName"] = self.options.storage_class
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": self.metadata(CLAIM, namespace),
            "spec": spec,
        }

    def _trainwright(self, *words: str) -> str:
        env = environment(TRAINWRIGHT_IMAGE=self.options.image or DEFAULT_IMAGE)
        done = subprocess.run([*TRAINWRIGHT, *words], env=env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _is_lease_role(self, obj: Mapping[str, Any]) -> bool:
        is_role = obj["apiVersion"].startswith("rbac.authorization.k8s.io/") and obj["metadata"]["name"].startswith(
            tuple(f"{name}-" for name in self._made)
        )
        return obj["metadata"]["namespace"] == TRAINER_NAMESPACE and is_role


class EmbeddedClusterUnderTest(ClusterUnderTest):
    """One that `trainwright up` has started in `folder`."""

    @classmethod
    def start(cls, run: str, folder: Path, options: Options, *words: str) -> EmbeddedClusterUnderTest:
        """Start it. `words` are further options of `trainwright up`."""
        home = folder / "home"
        home.mkdir(parents=True)
        (home / "images.yaml").write_text(_ABSENT, "utf-8")
        cluster = cls(home / "kubeconfig", run, folder, options)
        cluster._words = words
        cluster._up()
        return cluster

    _words: tuple[str, ...] = ()

    def why_no_restart(self) -> str:
        return ""

    @contextmanager
    def api_server_gone(self, seconds: float) -> Iterator[None]:
        pid = json.loads((self.folder / "home/running.json").read_text("utf-8"))["pid"]
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        try:
            yield
        finally:
            time.sleep(max(0.0, seconds - (time.monotonic() - began)))  # the outage itself
            self._up()

    def why_no_free_place(self) -> str:
        return ""

    def why_no_manager(self) -> str:
        return ""

    def why_no_lease(self) -> str:
        return ""

    @contextmanager
    def place(self) -> Iterator[ClusterUnderTest]:
        """Another embedded cluster, with the controllers of a cluster that has JobSet."""
        folder = self.folder / f"place-{next(self._numbers)}"
        other = type(self).start(self.run, folder, self.options, "--controllers", "jobset,job")
        try:
            yield other
        finally:
            other.remove()

    @contextmanager
    def managed_elsewhere(self) -> Iterator[tuple[ClusterUnderTest, str]]:
        """Another embedded cluster, where somebody holds Trainer's Lease and does nothing."""
        with self.place() as other:
            hold_lease(other, HOLDER)
            yield other, HOLDER

    def remove(self) -> None:
        self._trainwright("down", "--home", str(self.folder / "home"))

    def _up(self) -> None:
        self._trainwright("up", "--home", str(self.folder / "home"), *self._words)


def hold_lease(cluster: ClusterUnderTest, holder: str) -> None:
    """Hold Trainer's Lease for ten minutes, or give it back with an empty `holder`. Only on a cluster made for this."""
    assert isinstance(cluster, EmbeddedClusterUnderTest)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 600, "acquireTime": now, "renewTime": now}
    metadata = {"name": TRAINER_LEASE, "namespace": TRAINER_NAMESPACE}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    cluster.kubectl("apply", "-f", "-", text=json.dumps(lease))


def reading_runtime(trl: Obj, image: str, namespace: str) -> Obj:
    """Return a runtime `reads` whose dataset initializer is that of another, and whose node prints the rows."""
    jobs = {job["name"]: job for job in copy.deepcopy(trl["spec"]["template"]["spec"]["replicatedJobs"])}
    node = jobs["node"]
    node["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    pod = node["template"]["spec"]["template"]["spec"]
    pod.pop("initContainers")
    pod["containers"][0] |= {"image": image, "command": ["python3", "-c"], "args": [_READS]}
    spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [jobs["dataset-initializer"], node]}}}
    metadata = {"name": "reads", "namespace": namespace, "labels": {"trainer.kubeflow.org/framework": "plain"}}
    return {"apiVersion": trl["apiVersion"], "kind": "TrainingRuntime", "metadata": metadata, "spec": spec}


def given_cluster(run: str, folder: Path, options: Options) -> ClusterUnderTest:
    """The cluster of a kubeconfig, of which only the current context is used."""
    path = Path(options.kubeconfig).expanduser().absolute()
    command = ["kubectl", "--kubeconfig", str(path), "config", "view", "--minify", "--flatten", "--raw"]
    config = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    admin = folder / "admin.kubeconfig"
    admin.touch(0o600)
    admin.write_text(config, "utf-8")
    return ClusterUnderTest(admin, run, folder, options)
