"""Runs kubectl as a recorded session did, through a proxy that notes the HTTP requests of each command, and compares."""

import base64
import http.client
import http.server
import json
import os
import random
import re
import shlex
import ssl
import subprocess
import tempfile
import threading
import time
import urllib.parse

import wire_exchanges as wire


class Proxy(http.server.ThreadingHTTPServer):
    """HTTP in, TLS out; keeps a list of the requests it saw."""

    daemon_threads = True

    def __init__(self, server):
        super().__init__(("127.0.0.1", 0), Handler)
        self.log, self.lock = [], threading.Lock()
        self.token, self.target = server.token, urllib.parse.urlsplit(server.url)
        known = isinstance(server.verify, str)
        self.context = ssl.create_default_context(cafile=server.verify) if known else ssl._create_unverified_context()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *a):
        pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) if self.headers.get("Content-Length") else None
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        entry = {
            "method": self.command,
            "path": self.path,
            "accept": self.headers.get("Accept"),
            "content_type": self.headers.get("Content-Type"),
            "body": body,
        }
        with self.server.lock:
            self.server.log.append(entry)
        up = http.client.HTTPSConnection(self.server.target.netloc, context=self.server.context)
        headers = {
            k: v
            for k, v in self.headers.items()
            if k.lower() not in ("host", "connection", "transfer-encoding", "content-length")
        }
        headers.setdefault("Authorization", f"Bearer {self.server.token}")  # kubectl sends a token only where there is TLS
        up.request(self.command, self.path, body, headers)
        r = up.getresponse()
        entry["status"] = r.status
        self.send_response(r.status)
        length = r.getheader("Content-Length")
        for k, v in r.getheaders():
            if k.lower() not in ("connection", "transfer-encoding", "date", "server"):
                self.send_header(k, v)
        if length is None and r.status not in (204, 304):
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        while chunk := r.read1(65536):
            self.wfile.write(chunk if length is not None else b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        if length is None and r.status not in (204, 304):
            self.wfile.write(b"0\r\n\r\n")
        up.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = handle_any


def requests_of(entries, norm):
    out = []
    for e in entries:
        if e["path"].startswith("/version"):
            continue
        path = norm.text(e["path"])
        path = re.sub(r"(fieldSelector=)([^&]+)", lambda m: m.group(1) + "%2C".join(sorted(m.group(2).split("%2C"))), path)
        path = re.sub(r"hash=[0-9A-Fa-f]+", "hash=<hash>", path)
        path = re.sub(r"(resourceVersion=)([1-9]\d*)", r"\1<rv>", path)
        path = re.sub(r"(continue=)[^&]+", r"\1<continue>", path)
        path = re.sub(r"(timeoutSeconds=)\d+", r"\1<n>", path)
        path = re.sub(r"(timeout=)\d+m?s", r"\1<t>", path)
        r = {"method": e["method"], "path": path, "accept": e["accept"]}
        if e["body"]:
            r["content_type"] = e["content_type"]
            if "json" in (e["content_type"] or "") or e["body"][:1] in b"{[":
                try:
                    body = json.loads(e["body"])
                except ValueError:
                    body = norm.text(e["body"].decode())
                for op in body if isinstance(body, list) else []:  # a JSON patch
                    if op.get("path") == "/metadata/resourceVersion":
                        op["value"] = norm.rv(op["value"])
                r["body"] = norm.body(body)
            elif "protobuf" in (e["content_type"] or ""):
                if norm.ns.encode() in e["body"]:
                    r["body_base64_ns"] = norm.ns  # the namespace cannot be masked inside the bytes
                r["body_base64"] = base64.b64encode(e["body"]).decode()
            else:
                r["body_text"] = norm.text(e["body"].decode())
        r["status"] = (
            200 if e.get("status") == 304 and re.match(r"/(openapi|apis?\?)", path) else e.get("status")
        )  # a cached document
        out.append(r)
    return out


WATCH_ENDED = ('] "Warning: watch ended with error" reflector=', "very short watch: ")
"""What client-go logs of a watch that its own time limit ended, or does not, as its threads happen to run."""


def mask(text, norm, folder, proxy, generated=()):
    text = (
        text.replace(folder, "${dir}")
        .replace(f"http://127.0.0.1:{proxy.server_port}", "${server}")
        .replace(f"127.0.0.1:{proxy.server_port}", "${host}")
    )
    text = re.sub(r'("?resourceVersion"?: ")(\d+)(")', lambda m: m.group(1) + (norm.rv(m.group(2)) or "") + m.group(3), text)
    text = re.sub(r"(Resource Version:\s+)(\d+)", lambda m: m.group(1) + norm.rv(m.group(2)), text)
    for prefix in generated:
        for n in re.findall(rf"\b{prefix}[a-z0-9]{{5}}\b", text):
            norm.names.setdefault(n, f"{prefix}gen{len(norm.names) + 1}")
    text = norm.text(text)
    text = "\n".join(line for line in text.split("\n") if not any(words in line for words in WATCH_ENDED))
    text = re.sub(r"/tmp/(LIVE|MERGED)-\d+", r"<tmp>/\1", text)
    text = re.sub(r"(<tmp>/\S+)\t\S+ \S+ \S+", r"\1", text)
    text = re.sub(r"/tmp/kubectl[\w.]*-edit-\d+", "<tmp>/kubectl-edit", text)
    text = re.sub(
        r"^[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}|(?<=\s)[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}",
        "<date>",
        text,
    )
    text = re.sub(r"(?<=\s)\d+(s|m|m\d+s|h|h\d+m|d)(?=\s|$)", "<age>", text)
    text = re.sub(r"\bover \d+[smhd]\b", "over <age>", text)
    text = re.sub(r"\b[EIW]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ ", "<log> ", text)
    return "\n".join(re.sub(r"(?<=\S) {2,}", "  ", line).rstrip() for line in text.split("\n"))


def run_session(case, server, kubectl):
    ns = "w-" + "".join(random.choice("bcdfghjklmnpqrstvwxz") for _ in range(8))
    norm, variables, results = wire.Normaliser(ns, True), {"ns": ns}, []
    with tempfile.TemporaryDirectory() as folder:
        proxy = Proxy(server)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{proxy.server_port}"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": ns}}],
            "users": [{"name": "u", "user": {}}],
            "current-context": "x",
        }
        with open(folder + "/config", "w") as f:
            json.dump(config, f)
        env = {"PATH": os.environ["PATH"], "HOME": folder, "KUBECONFIG": folder + "/config", "KUBECTL": kubectl}
        os.mkdir(folder + "/w")
        work = folder + "/w"
        for name, content in case.get("files", {}).items():
            with open(f"{work}/{name}", "w") as f:
                if isinstance(content, str):
                    f.write(content.replace("${ns}", ns))
                else:
                    f.write(wire.yaml.safe_dump(wire.substitute(content, variables)))

        def post(path, body, method="POST", ctype="application/json"):
            return server.send(method, path, {"Content-Type": ctype}, json.dumps(body))

        post("/api/v1/namespaces", {"metadata": {"name": ns}})
        try:
            wire.set_up(case, server, ns)
            if not case.get("cold_cache"):
                subprocess.run([kubectl, "api-resources"], env=env, cwd=work, capture_output=True)
            for command in case["commands"]:
                if isinstance(command, str):
                    command = {"run": command}
                if "sleep" in command:
                    time.sleep(command["sleep"])
                if "api" in command:  # a request between commands, e.g. a status a node agent would write
                    method, path = wire.substitute(command["api"], variables).split(" ", 1)
                    r = post(
                        path,
                        wire.substitute(command.get("body", {}), variables),
                        method,
                        wire.CONTENT_TYPES[command.get("type", "json")],
                    )
                    assert r.status_code < 300, r.text
                    results.append(dict(command))
                    continue
                if "run" not in command:
                    results.append(dict(command))
                    continue
                proxy.log = []
                line = command["run"].replace("${ns}", ns)
                argv = shlex.split(line)
                if argv[0] == "kubectl":
                    argv[0] = kubectl
                extra = dict(command.get("env", {}).items())
                for later in command.get("meanwhile", []):  # requests sent while the command runs

                    def act(later=later):
                        time.sleep(later["after"])
                        method, path = wire.substitute(later["api"], variables).split(" ", 1)
                        post(
                            path,
                            wire.substitute(later.get("body", {}), variables),
                            method,
                            wire.CONTENT_TYPES[later.get("type", "json")],
                        )

                    threading.Thread(target=act, daemon=True).start()
                try:
                    p = subprocess.run(
                        argv,
                        env={**env, **extra},
                        cwd=work,
                        capture_output=True,
                        text=True,
                        timeout=command.get("timeout", 60),
                        input=command.get("stdin", "").replace("${ns}", ns),
                    )
                    out, err, code = p.stdout, p.stderr, p.returncode
                except subprocess.TimeoutExpired as e:
                    out, err, code = (e.stdout or b"").decode(), (e.stderr or b"").decode(), "timeout"
                for prefix in case.get("generated", ()):  # before the requests are masked
                    mask(out, norm, folder, proxy, [prefix])
                reqs = requests_of(list(proxy.log), norm)
                results.append(
                    dict(
                        command,
                        expected={
                            "exit": code,
                            "stdout": mask(out, norm, folder, proxy, case.get("generated", ())),
                            "stderr": mask(err, norm, folder, proxy, case.get("generated", ())),
                        },
                        requests=reqs,
                    )
                )
        finally:
            wire.clean(case, server, ns)
            proxy.shutdown()
    return dict(case, commands=results)


def unordered(requests):
    return sorted(json.dumps({k: v for k, v in r.items() if not k.startswith("body_base64")}, sort_keys=True) for r in requests)


def differences(a, b):
    out = []
    for i, (x, y) in enumerate(zip(a["commands"], b["commands"], strict=False)):
        if "expected" not in x:
            continue
        loose = x.get("loose", [])
        for k in ("exit", "stdout", "stderr"):
            if k in loose:
                continue
            ex, ey = x["expected"][k], y["expected"][k]
            if k != "exit" and x.get("unordered_lines"):
                ex, ey = sorted(ex.split("\n")), sorted(ey.split("\n"))
            if ex != ey:
                out.append(f"command {i + 1} ({x['run']}) {k}:\n      expected {ex!r}\n      got      {ey!r}")
        if "requests" not in loose and unordered(x["requests"]) != unordered(y["requests"]):
            extra = [r for r in unordered(y["requests"]) if r not in unordered(x["requests"])]
            missing = [r for r in unordered(x["requests"]) if r not in unordered(y["requests"])]
            out.append(f"command {i + 1} ({x['run']}) requests: missing {missing}, extra {extra}")
    return out


def check(path, server, kubectl):
    """What differs from a recorded session; empty where nothing does."""
    recorded = wire.load(path)
    commands = [{k: v for k, v in c.items() if k not in ("expected", "requests")} for c in recorded["commands"]]
    found = differences(recorded, run_session(dict(recorded, commands=commands), server, kubectl))
    return "".join(f"\n   {each}" for each in found)
