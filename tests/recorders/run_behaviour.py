#!/usr/bin/env python3
"""Run behaviour scenarios against a Kubernetes API server and write what was observed.

usage: run.py --kubeconfig FILE [--out DIR] [--workers N] [--gates A,B] [--quiet S] CASE_DIR...

Nothing but plain HTTP is used, so any API server that offers the batch, jobset
and trainer resources can be the target. There must be no kubelet: this runner
plays its part by writing pod status. See README.md for the step language.
"""

import argparse
import base64
import concurrent.futures
import datetime
import json
import os
import random
import re
import sys
import tempfile
import time

import requests
import yaml

# kind -> (api root, plural, namespaced, apiVersion)
KINDS = {
    "Namespace": ("/api/v1", "namespaces", False, "v1"),
    "Pod": ("/api/v1", "pods", True, "v1"),
    "Service": ("/api/v1", "services", True, "v1"),
    "ConfigMap": ("/api/v1", "configmaps", True, "v1"),
    "Secret": ("/api/v1", "secrets", True, "v1"),
    "PersistentVolumeClaim": ("/api/v1", "persistentvolumeclaims", True, "v1"),
    "Event": ("/api/v1", "events", True, "v1"),
    "Job": ("/apis/batch/v1", "jobs", True, "batch/v1"),
    "JobSet": ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets", True, "jobset.x-k8s.io/v1alpha2"),
    "TrainJob": ("/apis/trainer.kubeflow.org/v1alpha1", "trainjobs", True, "trainer.kubeflow.org/v1alpha1"),
    "TrainingRuntime": ("/apis/trainer.kubeflow.org/v1alpha1", "trainingruntimes", True, "trainer.kubeflow.org/v1alpha1"),
    "ClusterTrainingRuntime": (
        "/apis/trainer.kubeflow.org/v1alpha1",
        "clustertrainingruntimes",
        False,
        "trainer.kubeflow.org/v1alpha1",
    ),
}
WATCHED = ("JobSet", "Job", "Pod", "TrainJob", "Service")  # what "nothing has changed" looks at
LABEL = "jobset.sigs.k8s.io/"
INDEX = "batch.kubernetes.io/job-completion-index"


class Api:
    """A very small Kubernetes client: kubeconfig, session, JSON."""

    def __init__(self, kubeconfig):
        cfg = yaml.safe_load(open(kubeconfig))
        ctx = next(c["context"] for c in cfg["contexts"] if c["name"] == cfg["current-context"])
        cluster = next(c["cluster"] for c in cfg["clusters"] if c["name"] == ctx["cluster"])
        user = next(u["user"] for u in cfg["users"] if u["name"] == ctx["user"])
        self.server = cluster["server"].rstrip("/")
        self.session = requests.Session()
        self.session.trust_env = False
        here = os.path.dirname(os.path.abspath(kubeconfig))

        def as_file(box, key):
            if box.get(key + "-data"):
                f = tempfile.NamedTemporaryFile(delete=False)
                f.write(base64.b64decode(box[key + "-data"]))
                f.close()
                return f.name
            return os.path.join(here, box[key]) if box.get(key) else None

        self.session.verify = as_file(cluster, "certificate-authority") or not cluster.get("insecure-skip-tls-verify")
        cert, key = as_file(user, "client-certificate"), as_file(user, "client-key")
        if cert:
            self.session.cert = (cert, key)
        if user.get("token"):
            self.session.headers["Authorization"] = "Bearer " + user["token"]

    def path(self, kind, ns, name=None, sub=None):
        root, plural, namespaced, _ = KINDS[kind]
        parts = [root] + (["namespaces", ns] if namespaced else []) + [plural] + ([name] if name else []) + ([sub] if sub else [])
        return self.server + "/".join(parts)

    def call(self, method, url, body=None, content="application/json", **params):
        data = None if body is None else json.dumps(body)
        r = self.session.request(method, url, data=data, params=params, headers={"Content-Type": content}, timeout=30)
        try:
            return r.status_code, r.json()
        except ValueError:
            return r.status_code, {"kind": "Status", "message": r.text[:500]}

    def list(self, kind, ns):
        code, body = self.call("GET", self.path(kind, ns))
        return sorted(body.get("items") or [], key=lambda o: o["metadata"]["name"]) if code == 200 else []


def stamp(ago=0):
    t = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ago)
    return t.strftime("%Y-%m-%dT%H:%M:%SZ")


def live(pod):
    return pod["status"].get("phase") not in ("Succeeded", "Failed") and not pod["metadata"].get("deletionTimestamp")


def job_of(pod):
    return (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-name", "")


def index_of(pod):
    value = (pod["metadata"].get("annotations") or {}).get(INDEX)
    return None if value is None else int(value)


def kubelet_status(pod, step):
    """The status a kubelet would report for the phase asked for."""
    phase = step.get("phase", pod["status"].get("phase", "Pending"))
    done = phase in ("Succeeded", "Failed")
    ready = bool(step.get("ready", phase == "Running"))
    ago = step.get("finishedAgo", 3600)
    code = step.get("exitCode", 1 if phase == "Failed" else 0)

    def container(spec, init):
        hit = step.get("container") in (None, spec["name"]) if not init else step.get("container") == spec["name"]
        exit_code = code if (hit and phase == "Failed") else 0
        out = {
            "name": spec["name"],
            "image": spec.get("image", ""),
            "imageID": "",
            "containerID": "sim://" + spec["name"],
            "ready": ready and not init,
            "started": phase == "Running" and not init,
            "restartCount": step.get("restarts", 0) if hit else 0,
        }
        if done or (init and phase != "Pending"):
            out["state"] = {
                "terminated": {
                    "exitCode": exit_code,
                    "reason": "Error" if exit_code else "Completed",
                    "startedAt": stamp(ago + 1),
                    "finishedAt": stamp(ago),
                }
            }
        elif phase == "Running":
            out["state"] = {"running": {"startedAt": stamp()}}
        else:
            out["state"] = {"waiting": {"reason": step.get("waiting", "ContainerCreating")}}
        return out

    conditions = [
        {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": stamp(ago if done else 0)},
        {"type": "ContainersReady", "status": "True" if ready else "False", "lastTransitionTime": stamp(ago if done else 0)},
    ]
    if done:
        for c in conditions:
            c["reason"] = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    for extra in step.get("conditions", []):
        conditions.append({"lastTransitionTime": stamp(), **extra})
    status = {
        "phase": phase,
        "conditions": conditions,
        "startTime": pod["status"].get("startTime") or stamp(ago + 1 if done else 0),
    }
    if not step.get("noContainers"):
        status["containerStatuses"] = [container(c, False) for c in pod["spec"]["containers"]]
        if pod["spec"].get("initContainers"):
            status["initContainerStatuses"] = [container(c, True) for c in pod["spec"]["initContainers"]]
    for key in ("reason", "message"):
        if key in step:
            status[key] = step[key]
    return status


class Mask:
    """Replaces what differs from run to run by stable placeholders."""

    RULES = [
        (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<uid>"),
        (re.compile(r"\b[0-9a-f]{40}\b"), "<sha1>"),
        (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
        (re.compile(r"Invalid value: [\[{].*[\]}](?=: )", re.S), "Invalid value: <value>"),
        (re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}(?![-a-z0-9])"), "-<rand>"),
    ]

    def __init__(self, ns):
        self.ns = ns

    def __call__(self, value):
        if isinstance(value, dict):
            return {k: self(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self(v) for v in value]
        if not isinstance(value, str):
            return value
        value = value.replace(self.ns, "NS")
        for pattern, to in self.RULES:
            value = pattern.sub(to, value)
        return value


def conditions_of(obj):
    return [
        {k: c.get(k, "") for k in ("type", "status", "reason", "message")}
        for c in (obj.get("status") or {}).get("conditions") or []
    ]


def owner_of(obj):
    for ref in obj["metadata"].get("ownerReferences") or []:
        if ref.get("controller"):
            return ref["kind"] + "/" + ref["name"]
    return None


def dig(obj, path):
    for key in path.split("."):
        if isinstance(obj, list) and key.isdigit() and int(key) < len(obj):
            obj = obj[int(key)]
        elif isinstance(obj, dict):
            obj = obj.get(key)
        else:
            return None
    return obj


class Run:
    def __init__(self, api, case, quiet):
        self.api, self.quiet = api, quiet
        self.scenario = yaml.safe_load(open(os.path.join(case, "scenario.yaml")))
        self.name = os.path.basename(os.path.normpath(case))
        self.ns = "beh{}".format("".join(random.choice("0123456789") for _ in range(9)))
        self.mask = Mask(self.ns)
        self.results, self.observations, self.seen = [], [], set()
        self.cluster_objects = []

    # ---- one step of each kind
    def record(self, step, what, code, body):
        entry = {"step": step, "do": what, "code": code}
        if code >= 400:
            details = body.get("details") or {}
            entry["reason"] = body.get("reason", "")
            entry["message"] = self.mask(body.get("message", ""))
            causes = [{k: self.mask(c.get(k, "")) for k in ("reason", "field", "message")} for c in details.get("causes") or []]
            if causes:
                entry["causes"] = causes
        self.results.append(entry)

    def create(self, step, obj):
        kind = obj["kind"]
        obj = {"apiVersion": KINDS[kind][3], **obj}
        code, body = self.api.call("POST", self.api.path(kind, self.ns), obj)
        if not KINDS[kind][2] and code < 300:
            self.cluster_objects.append((kind, obj["metadata"]["name"]))
        self.record(
            step, "create {}/{}".format(kind, obj["metadata"].get("name") or obj["metadata"].get("generateName")), code, body
        )
        if kind.endswith("TrainingRuntime"):
            time.sleep(0.6)  # admission of TrainJobs reads runtimes from a cache

    def patch(self, step, arg):
        url = self.api.path(arg["kind"], self.ns, arg["name"], arg.get("subresource"))
        content = "application/json-patch+json" if isinstance(arg["patch"], list) else "application/merge-patch+json"
        code, body = self.api.call("PATCH", url, arg["patch"], content)
        self.record(step, "patch {}/{}".format(arg["kind"], arg["name"]), code, body)

    def delete(self, step, arg):
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": arg.get("propagation", "Background")}
        code, body = self.api.call("DELETE", self.api.path(arg["kind"], self.ns, arg["name"]), options)
        self.record(step, "delete {}/{}".format(arg["kind"], arg["name"]), code, body)

    def select(self, arg):
        want_job, index, count = arg.get("job"), arg.get("index", "all"), arg.get("count")
        pick = (
            (lambda p: bool(p["metadata"].get("deletionTimestamp")))
            if arg.get("terminating")
            else (lambda p: not live(p) and not p["metadata"].get("deletionTimestamp"))
            if arg.get("finished")
            else live
        )
        pods = [p for p in self.api.list("Pod", self.ns) if pick(p) and (want_job is None or job_of(p) == want_job)]
        if index != "all":
            wanted = index if isinstance(index, list) else [index]
            pods = [p for p in pods if index_of(p) in wanted]
        return pods[:count] if count is not None else pods

    def pods(self, step, arg):
        pods = self.select(arg)
        for pod in pods:
            url = self.api.path("Pod", self.ns, pod["metadata"]["name"], "status")
            code, body = self.api.call("PATCH", url, {"status": kubelet_status(pod, arg)}, "application/merge-patch+json")
            if code >= 400:
                self.record(step, "pod status", code, body)
        self.results.append({"step": step, "do": "pods {}".format(arg.get("job", "*")), "matched": len(pods)})

    def pod_meta(self, step, arg):
        pods = self.select(arg)
        for pod in pods:
            self.api.call(
                "PATCH",
                self.api.path("Pod", self.ns, pod["metadata"]["name"]),
                {"metadata": arg["metadata"]},
                "application/merge-patch+json",
            )
        self.results.append({"step": step, "do": "podMeta {}".format(arg.get("job", "*")), "matched": len(pods)})

    def bind(self, step, arg):
        pods = self.select(arg)
        for pod in pods:
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod["metadata"]["name"]},
                "target": {"kind": "Node", "name": arg.get("node", "node-1")},
            }
            self.api.call("POST", self.api.path("Pod", self.ns, pod["metadata"]["name"], "binding"), body)
        self.results.append({"step": step, "do": "bind {}".format(arg.get("job", "*")), "matched": len(pods)})

    def delete_pods(self, step, arg):
        pods = self.select(arg)
        body = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if "grace" in arg:
            body["gracePeriodSeconds"] = arg["grace"]
        for pod in pods:
            self.api.call("DELETE", self.api.path("Pod", self.ns, pod["metadata"]["name"]), body)
        self.results.append({"step": step, "do": "deletePods {}".format(arg.get("job", "*")), "matched": len(pods)})

    def settle(self, label, arg):
        arg = arg or {}
        quiet, limit = arg.get("quiet", self.quiet), arg.get("max", 25)
        start = last = time.monotonic()
        before = None
        while True:
            now_state = {
                (k, o["metadata"]["name"], o["metadata"]["uid"], o["metadata"]["resourceVersion"])
                for k in WATCHED
                for o in self.api.list(k, self.ns)
            }
            now = time.monotonic()
            if now_state != before:
                before, last = now_state, now
            if now - last >= quiet:
                break
            if now - start > limit:
                self.observe(label, unsettled=True)
                raise RuntimeError(f"{self.name}: not settled after {limit}s at step {label}")
            time.sleep(0.35)
        self.observe(label)

    # ---- the normalised picture
    def observe(self, label, unsettled=False):
        ns, m, api = self.ns, self.mask, self.api
        show = self.scenario.get("show") or {}
        seen = {"after": label}
        if unsettled:
            seen["unsettled"] = True

        def common(obj, kind, out):
            if obj["metadata"].get("deletionTimestamp"):
                out["deleting"] = True
                out["finalizers"] = sorted(obj["metadata"].get("finalizers") or [])
            shown = {p: dig(obj, p) for p in show.get(kind, []) if dig(obj, p) is not None}
            if shown:
                out["show"] = shown
            return m(out)

        for tj in api.list("TrainJob", ns):
            status = tj.get("status") or {}
            out = {"suspend": tj["spec"].get("suspend"), "conditions": conditions_of(tj)}
            if status.get("jobsStatus") is not None:
                out["jobsStatus"] = sorted(status["jobsStatus"], key=lambda s: s["name"])
            seen.setdefault("trainjobs", {})[tj["metadata"]["name"]] = common(tj, "TrainJob", out)
        for js in api.list("JobSet", ns):
            status = dict(js.get("status") or {})
            status.pop("conditions", None)
            if status.get("replicatedJobsStatus"):
                status["replicatedJobsStatus"] = sorted(status["replicatedJobsStatus"], key=lambda s: s["name"])
            out = {"suspend": js["spec"].get("suspend"), "status": status, "conditions": conditions_of(js)}
            if owner_of(js):
                out["owner"] = owner_of(js)
            seen.setdefault("jobsets", {})[js["metadata"]["name"]] = common(js, "JobSet", out)
        for job in api.list("Job", ns):
            labels, status = job["metadata"].get("labels") or {}, dict(job.get("status") or {})
            out = {
                "owner": owner_of(job),
                "attempt": labels.get(LABEL + "restart-attempt"),
                "jobAttempt": labels.get(LABEL + "job-restart-attempt"),
                "spec": {
                    k: job["spec"].get(k)
                    for k in ("parallelism", "completions", "suspend", "completionMode")
                    if job["spec"].get(k) is not None
                },
                "status": {
                    k: status[k]
                    for k in ("active", "ready", "succeeded", "failed", "terminating", "completedIndexes", "failedIndexes")
                    if status.get(k)
                },
                "started": bool(status.get("startTime")),
                "completionTime": bool(status.get("completionTime")),
                "conditions": conditions_of(job),
            }
            out = {k: v for k, v in out.items() if v is not None}
            seen.setdefault("jobs", {})[job["metadata"]["name"]] = common(job, "Job", out)
        pods = []
        for pod in api.list("Pod", ns):
            labels, notes = pod["metadata"].get("labels") or {}, pod["metadata"].get("annotations") or {}
            out = {
                "job": job_of(pod),
                "index": index_of(pod),
                "phase": pod["status"].get("phase"),
                "attempt": labels.get(LABEL + "restart-attempt"),
                "jobAttempt": labels.get(LABEL + "job-restart-attempt"),
                "indexFailures": notes.get("batch.kubernetes.io/job-index-failure-count"),
                "indexIgnored": notes.get("batch.kubernetes.io/job-index-ignored-failure-count"),
                "ready": any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or []),
                "tracked": "batch.kubernetes.io/job-tracking" in (pod["metadata"].get("finalizers") or []),
            }
            pods.append(common(pod, "Pod", {k: v for k, v in out.items() if v is not None}))
        if pods:
            seen["pods"] = sorted(
                pods,
                key=lambda p: json.dumps(
                    [p["job"], p.get("index", -1), p["phase"], bool(p.get("deleting")), p], sort_keys=True, default=str
                ),
            )
        for svc in api.list("Service", ns):
            spec = svc["spec"]
            out = {
                "owner": owner_of(svc),
                "clusterIP": spec.get("clusterIP"),
                "selector": spec.get("selector"),
                "publishNotReadyAddresses": bool(spec.get("publishNotReadyAddresses")),
            }
            if spec.get("clusterIP") != "None":
                out["clusterIP"] = "<ip>"
            seen.setdefault("services", {})[svc["metadata"]["name"]] = common(svc, "Service", out)
        for kind in ("PersistentVolumeClaim", "ConfigMap", "Secret", "TrainingRuntime"):
            for obj in api.list(kind, ns):
                if obj["metadata"]["name"] == "kube-root-ca.crt":
                    continue
                seen.setdefault("others", {})["{}/{}".format(kind, obj["metadata"]["name"])] = common(
                    obj, kind, {"owner": owner_of(obj)}
                )
        fresh = []
        for ev in api.list("Event", ns):
            who = ev.get("involvedObject") or {}
            if self.stale_create(ev, seen.get("jobs", {})):
                continue
            key = (
                ev.get("type", ""),
                ev.get("reason", ""),
                who.get("kind", ""),
                m(who.get("name", "")),
                m(ev.get("message", "")),
            )
            if key not in self.seen:
                self.seen.add(key)
                fresh.append(dict(zip(("type", "reason", "kind", "name", "message"), key, strict=False)))
        if fresh:
            seen["newEvents"] = sorted(fresh, key=lambda e: json.dumps(e, sort_keys=True))
        self.observations.append(seen)

    @staticmethod
    def stale_create(event, jobs):
        """The JobSet controller tried again to create a Job that it had just created itself: depends on its cache, left out."""
        found = re.search(r'^job "([^"]+)" creation failed .* already exists$', event.get("message", ""))
        if not found or event.get("reason") != "JobCreationFailed":
            return False
        job = jobs.get(found.group(1))
        return job is None or job.get("owner", "").startswith("JobSet/")

    # ---- all of it
    def go(self):
        began = time.monotonic()
        deadline = time.monotonic() + 10
        self.api.call(
            "POST", self.api.path("Namespace", None), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.ns}}
        )
        while self.api.call("GET", self.api.path("Namespace", None, self.ns))[0] != 200 and time.monotonic() < deadline:
            time.sleep(0.1)
        error = None
        try:
            for obj in self.scenario.get("objects", []):
                self.create("objects", obj)
            actions = {
                "create": self.create,
                "patch": self.patch,
                "delete": self.delete,
                "pods": self.pods,
                "podMeta": self.pod_meta,
                "bind": self.bind,
                "deletePods": self.delete_pods,
            }
            for number, step in enumerate(self.scenario.get("steps", []), 1):
                kind, arg = (step, None) if isinstance(step, str) else next(iter(step.items()))
                if kind == "settle":
                    self.settle("step %d" % number, arg)
                elif kind == "wait_seconds":
                    time.sleep(arg)
                elif kind == "observe":
                    self.observe("step %d" % number)
                else:
                    actions[kind](number, arg)
        except Exception as exc:
            error = f"{type(exc).__name__}: {exc}"
        finally:
            self.cleanup()
        out = {"scenario": self.name, "results": self.results, "observations": self.observations}
        if error:
            out["error"] = error
        return out, error, time.monotonic() - began

    def cleanup(self):
        for kind, name in self.cluster_objects:
            self.api.call("DELETE", self.api.path(kind, None, name))
        for kind in ("TrainJob", "JobSet", "Job"):
            for obj in self.api.list(kind, self.ns):
                self.api.call(
                    "DELETE",
                    self.api.path(kind, self.ns, obj["metadata"]["name"]),
                    {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"},
                )
        for pod in self.api.list("Pod", self.ns):
            self.api.call(
                "DELETE",
                self.api.path("Pod", self.ns, pod["metadata"]["name"]),
                {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0},
            )
        self.api.call("DELETE", self.api.path("Namespace", None, self.ns))


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        yaml.dump(data, f, Dumper=Dumper, sort_keys=False, width=200, allow_unicode=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--kubeconfig", required=True)
    ap.add_argument("--out", help="write OUT/<case>/observed.yaml (default: next to the scenario)")
    ap.add_argument("--workers", type=int, default=6)
    ap.add_argument("--quiet", type=float, default=1.9, help="seconds without a change that count as settled")
    ap.add_argument(
        "--gates",
        default="",
        help="feature gates that the JobSet controller runs with; only scenarios asking for exactly these are run",
    )
    ap.add_argument("cases", nargs="+")
    a = ap.parse_args()
    gates = sorted(g for g in a.gates.split(",") if g)
    cases = [c for c in a.cases if sorted(yaml.safe_load(open(os.path.join(c, "scenario.yaml"))).get("gates") or []) == gates]

    def one(case):
        out, error, took = Run(Api(a.kubeconfig), case, a.quiet).go()
        write(os.path.join(a.out, out["scenario"], "observed.yaml") if a.out else os.path.join(case, "observed.yaml"), out)
        print("%-58s %5.1fs %s" % (out["scenario"], took, error or ""), flush=True)
        return error

    with concurrent.futures.ThreadPoolExecutor(a.workers) as pool:
        errors = [e for e in pool.map(one, cases) if e]
    print("%d scenarios, %d with errors" % (len(cases), len(errors)))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
