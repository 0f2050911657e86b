"""Replaying of case files against a Kubernetes API server, and normalisation of what it answers. See README.md."""

import base64
import contextlib
import copy
import datetime
import json
import random
import re
import socket
import tempfile
import threading
import time

import requests
import yaml

CONTENT_TYPES = {
    "json": "application/json",
    "yaml": "application/yaml",
    "merge": "application/merge-patch+json",
    "json-patch": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
HEADERS = ["Allow", "Content-Encoding", "Content-Type", "Etag", "Retry-After", "Vary", "Warning", "WWW-Authenticate"]
PLURALS = {"ClusterTrainingRuntime": "clustertrainingruntimes", "Namespace": "namespaces"}
QUIET = 0.8  # seconds without an event after which a watch counts as quiet


# ---------- connection


class Server:
    """Where requests go: URL, token, CA from a kubeconfig."""

    def __init__(self, kubeconfig):
        cfg = yaml.safe_load(open(kubeconfig))
        ctx = next(c for c in cfg["contexts"] if c["name"] == cfg["current-context"])["context"]
        cluster = next(c for c in cfg["clusters"] if c["name"] == ctx["cluster"])["cluster"]
        user = next(u for u in cfg["users"] if u["name"] == ctx["user"])["user"]
        self.url, self.token, self.verify = cluster["server"].rstrip("/"), user.get("token"), True
        if cluster.get("insecure-skip-tls-verify"):
            self.verify = False
        elif "certificate-authority" in cluster:
            self.verify = cluster["certificate-authority"]
        elif "certificate-authority-data" in cluster:
            f = tempfile.NamedTemporaryFile(suffix=".crt", delete=False)
            f.write(base64.b64decode(cluster["certificate-authority-data"]))
            f.close()
            self.verify = f.name
        self.local = threading.local()

    @property
    def session(self):
        """One session per thread."""
        if not hasattr(self.local, "session"):
            self.local.session = requests.Session()
            self.local.session.trust_env = False
        return self.local.session

    def send(self, method, path, headers=None, body=None, auth=None, stream=False):
        h = {"User-Agent": "wire-recorder/1.0", "Accept": "application/json", "Accept-Encoding": "identity"}
        token = self.token if auth is None else auth
        if token and auth != "none":
            h["Authorization"] = "Bearer " + token
        h.update(headers or {})
        req = requests.Request(method, self.url + path, headers=h, data=body)
        prepared = self.session.prepare_request(req)
        prepared.url = self.url + path  # as written, not re-quoted
        return self.session.send(prepared, verify=self.verify, stream=stream, timeout=(10, 60), allow_redirects=False)


class Watch(threading.Thread):
    """One open watch; collects its events in the background."""

    def __init__(self, server, method, path, headers, auth):
        super().__init__(daemon=True)
        self.events, self.last, self.closed, self.taken = [], time.time(), False, 0
        self.response = server.send(method, path, headers, auth=auth, stream=True)
        self.sock = getattr(getattr(self.response.raw, "_connection", None), "sock", None)
        self.start()

    def run(self):
        try:
            if self.response.status_code != 200:
                self.error_body = self.response.content
                return
            buf = b""
            while True:
                chunk = self.response.raw.read1(65536) if hasattr(self.response.raw, "read1") else self.response.raw.read(1)
                if not chunk:
                    break
                buf += chunk
                while b"\n" in buf:
                    line, buf = buf.split(b"\n", 1)
                    if line.strip():
                        self.events.append(json.loads(line))
                        self.last = time.time()
        except Exception:
            pass
        finally:
            self.closed = True
            self.last = time.time()

    def collect(self, wait, want_close):
        start = time.time()
        self.last = start
        limit = start + (wait or 15)
        while time.time() < limit and not self.closed:
            if not want_close and time.time() - self.last > QUIET:
                break
            time.sleep(0.05)
        new, self.taken = self.events[self.taken :], len(self.events)
        # a server may send a bookmark at any time; only the one that ends the initial events is part of the answer
        return [e for e in new if e.get("type") != "BOOKMARK" or "k8s.io/initial-events-end" in json.dumps(e)]

    def stop(self):
        """Ends the connection under the reading thread."""
        with contextlib.suppress(Exception):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


# ---------- paths: a.b.0.c, [key=value] picks from a list, * is every element, \. is a dot inside a key


def parsers(s):
    """Masks what only a server written in Go would say word for word."""
    s = re.sub(r'((?:^|patch: )Invalid value: )"\{.*\}"', r'\1"<object>"', s, flags=re.S)
    s = re.sub(r'(Invalid value: )\{"Spec":.*?\}(: field is immutable)', r"\1<template>\2", s, flags=re.S)
    s = re.sub(r"\n@@ -\d+.*", "\n<diff>", s, flags=re.S)
    s = re.sub(r'in scheme "[^"]*"', "in scheme <scheme>", s)
    s = re.sub(r"Key: /registry/\S+,", "Key: <key>,", s)
    return GO.sub(r"\1<parser>", s).replace("unexpected end of JSON input", "<parser>")


def split_path(path):
    return [p.replace("\0", ".") for p in path.replace("\\.", "\0").split(".")]


def pick(value, path):
    """The value at a path; None when it is absent."""
    for part in split_path(path) if isinstance(path, str) else path:
        if isinstance(value, list):
            if part.startswith("["):
                k, v = part[1:-1].split("=", 1)
                value = next((x for x in value if isinstance(x, dict) and str(pick(x, k.split("."))) == v), None)
            elif part.lstrip("-").isdigit():
                value = value[int(part)] if -len(value) <= int(part) < len(value) else None
            else:
                return None
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def drop(value, parts):
    """Removes what the path names, in place."""
    if not parts or not isinstance(value, (dict, list)):
        return
    head, rest = parts[0], parts[1:]
    if isinstance(value, dict):
        keys = list(value) if head == "*" else [head] if head in value else []
        for k in keys:
            if rest:
                drop(value[k], rest)
            else:
                del value[k]
    else:
        if head == "*":
            chosen = list(value)
        elif head.startswith("["):
            k, v = head[1:-1].split("=", 1)
            chosen = [x for x in value if isinstance(x, dict) and str(x.get(k)) == v]
        else:
            chosen = [value[int(head)]] if head.isdigit() and int(head) < len(value) else []
        for x in chosen:
            if rest:
                drop(x, rest)
            else:
                value.remove(x)


# ---------- normalisation

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
IP = re.compile(r"\b10\.0\.0\.\d{1,3}\b")
GO = re.compile(
    r"(json parse error: |cannot be handled as an? \w+: (?!strict)|continue key is not valid: |json: cannot unmarshal |error converting YAML to JSON: |error decoding (?:YAML|patch): |yaml: |invalid character |strconv\.\w+: ).*",
    re.S,
)  # texts of Go's own parsers
AGE = re.compile(r"^\d+[smhd](\d+[smh])?$")


class Normaliser:
    """Masks what differs between two runs of one case. Placeholders are numbered by first appearance."""

    def __init__(self, ns, keep_managed=False):
        self.ns, self.keep_managed = ns, keep_managed
        self.uids, self.rvs, self.ips, self.tokens, self.names = {}, {}, {}, {}, {}

    def number(self, table, key, prefix):
        return table.setdefault(key, f"{prefix}{len(table) + 1}")

    def rv(self, value):
        return self.number(self.rvs, value, "rv") if value and value.isdigit() and value != "0" else value

    def rv_order(self):
        return [name for value, name in sorted(self.rvs.items(), key=lambda kv: int(kv[0]))]

    def timestamp(self, match):
        text = match.group(0)
        base = datetime.datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00"))
        if abs((datetime.datetime.now(datetime.UTC) - base).total_seconds()) > 7200:
            return text
        return "now.micro" if match.group(1) else "now"

    def text(self, s):
        s = s.replace(self.ns, "${ns}")
        for real, mask in self.names.items():
            s = s.replace(real, mask)
        s = UUID.sub(lambda m: self.number(self.uids, m.group(0), "uid"), s)
        s = TIME.sub(self.timestamp, s)
        s = IP.sub(lambda m: self.number(self.ips, m.group(0), "ip") if m.group(0) != "10.0.0.1" else m.group(0), s)
        s = re.sub(r"\?hash=[0-9A-Fa-f]{16,}", "?hash=<hash>", s)
        low = s.lower()
        if "resource version" in low or "resourceversion" in low:
            s = re.sub(r"(too old resource version: )\d+ \(\d+\)", r"\1<rv> (<rv>)", s)
            s = re.sub(r"(current: )\d+", r"\1<rv>", s)
            s = re.sub(r"\b\d+\b", lambda m: self.rvs.get(m.group(0), m.group(0)), s)
        return s

    def learn(self, v):
        """Remembers generated names and object versions before anything is replaced."""
        if isinstance(v, dict):
            m = v.get("metadata")
            if (
                isinstance(m, dict)
                and isinstance(m.get("generateName"), str)
                and str(m.get("name", "")).startswith(m["generateName"])
            ):
                suffix = m["name"][len(m["generateName"]) :]
                if re.fullmatch(r"[a-z0-9]{5}", suffix) and m["name"] not in self.names:
                    self.names[m["name"]] = m["generateName"].replace(self.ns, "${ns}") + f"gen{len(self.names) + 1}"
            for k in sorted(v):
                self.learn(v[k])
        elif isinstance(v, list):
            for x in v:
                self.learn(x)

    def check_list(self, v):
        """A list must not be older than its items."""
        rv = str(v["metadata"].get("resourceVersion") or "")
        items = [
            str((i.get("metadata") or {}).get("resourceVersion") or "0") for i in v.get("items") or [] if isinstance(i, dict)
        ]
        if rv.isdigit() and any(i.isdigit() and int(i) > int(rv) for i in items):
            v["metadata"]["resourceVersion"] = "older than its items"

    def walk(self, v, key=None, in_list_meta=False):
        if isinstance(v, dict):
            is_list = ("items" in v or "rows" in v or str(v.get("kind", "")).endswith("List")) and "metadata" in v
            out = {}
            if is_list:
                self.check_list(v)
            for k in sorted(v):
                x = v[k]
                if k == "managedFields" and not self.keep_managed:
                    continue
                if k == "storageVersionHash" or (k == "description" and key == "columnDefinitions"):
                    continue
                if k == "managedFields":
                    x = sorted(
                        x or [],
                        key=lambda e: (
                            e.get("operation", ""),
                            e.get("subresource", ""),
                            e.get("manager", ""),
                            e.get("apiVersion", ""),
                        ),
                    )
                if k == "resourceVersion" and isinstance(x, str) and key == "metadata":
                    out[k] = "listrv" if (in_list_meta or self.in_bookmark) and x.isdigit() and x != "0" else self.rv(x)
                    continue
                if k == "continue" and key == "metadata" and x:
                    out[k] = self.number(self.tokens, x, "continue")
                    continue
                if k == "cells" and isinstance(x, list):
                    x = ["<age>" if isinstance(c, str) and AGE.match(c) else c for c in x]
                out[self.text(k)] = self.walk(x, k, is_list and k == "metadata")
            return out
        if isinstance(v, list):
            return [self.walk(x, key) for x in v]
        if isinstance(v, str) and key == "message":
            v = parsers(v)
        return self.text(v) if isinstance(v, str) else v

    def body(self, v):
        v = copy.deepcopy(v)
        self.learn(v)
        self.in_bookmark = isinstance(v, dict) and v.get("type") == "BOOKMARK"
        return self.walk(v)


# ---------- replay


def substitute(value, variables):
    if isinstance(value, dict):
        return {substitute(k, variables): substitute(v, variables) for k, v in value.items()}
    if isinstance(value, list):
        return [substitute(v, variables) for v in value]
    if isinstance(value, str):
        value = re.sub(r"\$\{fill:(\d+)\}", lambda m: "x" * int(m.group(1)), value)
        return re.sub(r"\$\{(\w+)\}", lambda m: str(variables.get(m.group(1), m.group(0))), value)
    return value


def encode(step, variables):
    """Body bytes and content type of a step."""
    ctype = step.get("type", "json")
    ctype = CONTENT_TYPES.get(ctype, ctype)
    if "raw" in step:
        return substitute(step["raw"], variables).encode(), ctype
    if "base64" in step:
        return base64.b64decode(step["base64"]), ctype
    if "body" not in step:
        return None, step.get("type") and ctype
    body = substitute(step["body"], variables)
    if "yaml" in ctype and step.get("type") != "apply":
        return yaml.safe_dump(body).encode(), ctype
    return json.dumps(body).encode(), ctype


def parse(response, content):
    kind = response.headers.get("Content-Type", "")
    if "json" in kind or content[:1] == b"{":  # the OpenAPI index says text/plain
        return json.loads(content) if content else ""
    if "yaml" in kind:
        return {"yaml": yaml.safe_load(content)} if content else ""
    return content.decode("utf8", "replace")


def post_path(obj, ns):
    group = obj["apiVersion"]
    base = ("/apis/" if "/" in group else "/api/") + group
    plural = PLURALS.get(obj["kind"]) or obj["kind"].lower() + "s"
    return f"{base}/{plural}" if obj["kind"] in PLURALS else f"{base}/namespaces/{ns}/{plural}"


def matches(until, response, body):
    for k, v in until.items():
        if k == "status":
            if response.status_code != v:
                return False
        elif pick(body, k) != v:
            return False
    return True


def replay(case, server, ns=None):
    """Runs a case; returns (list of answers, one per step or None, order of resource versions)."""
    ns = ns or "w-" + "".join(random.choice("bcdfghjklmnpqrstvwxz") for _ in range(8))
    variables, watches, answers = {"ns": ns}, {}, []
    norm = Normaliser(ns, case.get("managedFields", False))
    if case.get("namespace", True):
        r = server.send(
            "POST", "/api/v1/namespaces", {"Content-Type": "application/json"}, json.dumps({"metadata": {"name": ns}})
        )
        assert r.status_code == 201, r.text
    try:
        set_up(case, server, ns)
        for step in case["steps"]:
            answers.append(run_step(step, server, variables, watches, norm))
    finally:
        for w in watches.values():
            w.stop()
        if case.get("namespace", True):
            clean(case, server, ns)
    return answers, norm.rv_order()


def set_up(case, server, ns):
    """Creates the objects of `setup`, and waits until admission knows a runtime that was made just now."""
    objects = substitute(case.get("setup", []), {"ns": ns})
    for obj in objects:
        for _attempt in range(20):
            r = server.send("POST", post_path(obj, ns), {"Content-Type": "application/json"}, json.dumps(obj))
            if r.status_code == 201:
                break
            time.sleep(0.3)
        assert r.status_code == 201, f"setup: {r.status_code} {r.text}"
    for obj in objects:
        if obj["kind"] == "TrainingRuntime":
            probe = {
                "apiVersion": obj["apiVersion"],
                "kind": "TrainJob",
                "metadata": {"name": "probe"},
                "spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": obj["metadata"]["name"]}},
            }
            for _attempt in range(20):
                if (
                    server.send(
                        "POST", post_path(probe, ns) + "?dryRun=All", {"Content-Type": "application/json"}, json.dumps(probe)
                    ).status_code
                    != 403
                ):
                    break
                time.sleep(0.2)


def clean(case, server, ns):
    """Ends the namespace of a case, and what would hold it: pods on a node nobody runs, claims with a finalizer."""
    text = json.dumps(case)
    if "nodeName" in text or "/binding" in text:
        server.send("DELETE", f"/api/v1/namespaces/{ns}/pods?gracePeriodSeconds=0")
    if "PersistentVolumeClaim" in text:
        r = server.send("GET", f"/api/v1/namespaces/{ns}/persistentvolumeclaims")
        for item in r.json().get("items") or []:
            server.send(
                "PATCH",
                f"/api/v1/namespaces/{ns}/persistentvolumeclaims/{item['metadata']['name']}",
                {"Content-Type": CONTENT_TYPES["merge"]},
                '{"metadata":{"finalizers":null}}',
            )
    server.send("DELETE", f"/api/v1/namespaces/{ns}")


def run_step(step, server, variables, watches, norm):
    if "pause" in step:
        time.sleep(step["pause"])
    if "events" in step:
        w = watches[step["events"]]
        events = w.collect(step.get("wait"), step.get("closed", False))
        answer = {"status": w.response.status_code, "events": [norm.body(e) for e in events]}
        if "closed" in step:
            answer["closed"] = w.closed
        if step.get("types"):
            answer["events"] = [{"type": e["type"], "name": pick(e, "object.metadata.name")} for e in answer["events"]]
        for path in step.get("loose", []):
            for e in answer["events"]:
                drop(e, split_path(path))
        for name, path in step.get("save", {}).items():
            variables[name] = pick(events, path)
        return answer
    if "do" not in step:
        return None
    method, path = substitute(step["do"], variables).split(" ", 1)
    headers = substitute(step.get("headers", {}), variables)
    body, ctype = encode(step, variables)
    if ctype:
        headers.setdefault("Content-Type", ctype)
    if "watch" in step:
        w = watches[step["watch"]] = Watch(server, method, path, headers, step.get("auth"))
        w.join(0.3 if w.response.status_code == 200 else 5)
        answer = {"status": w.response.status_code, "headers": pick_headers(w.response, norm, step)}
        if w.response.status_code != 200:
            answer["body"] = norm.body(parse(w.response, w.error_body))
        return answer
    deadline = time.time() + 90
    while True:
        r = server.send(method, path, headers, body, step.get("auth"))
        raw = parse(r, r.content)
        if "until" not in step or matches(substitute(step["until"], variables), r, raw) or time.time() > deadline:
            break
        time.sleep(0.15)
    for name, p in step.get("save", {}).items():
        variables[name] = pick(raw, p)
    if step.get("quiet"):
        norm.body(raw)
        return {"status": r.status_code}
    answer = {"status": r.status_code, "headers": pick_headers(r, norm, step)}
    if "expect" in step:
        masked = norm.body(raw)
        answer["body_at"] = {p: copy.deepcopy(pick(masked, p)) for p in step["expect"]}
        for p in step.get("loose", []):
            for v in answer["body_at"].values():
                drop(v, split_path(p))
    elif step.get("no_body"):
        answer["body_length_positive"] = len(r.content) > 0
    else:
        answer["body"] = norm.body(raw)
        for p in step.get("loose", []):
            drop(answer["body"], split_path(p))
        for p in step.get("sort", []):
            (pick(answer["body"], p) or []).sort(key=lambda x: json.dumps(x, sort_keys=True))
    return answer


def pick_headers(r, norm, step):
    out = {}
    for h in HEADERS:
        if h in r.headers:
            if h == "Vary":
                continue
            out[h] = "<etag>" if h == "Etag" else norm.text(r.headers[h])
    return out


def load(path):
    with open(path) as f:
        return yaml.load(f, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
