"""Controllers as processes of their own, each behind a door that notes what it asks and can be shut."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import urllib3
import yaml
from factories import jobset, replicated_job, trainjob

from support.rbac_evaluator import Rbac
from support.running_plane import running_plane
from support.waiting import eventually
from trainwright.api.errors import NotFound
from trainwright.api.kinds import JOBSET
from trainwright.cluster.refusals import _PATH, Permission, permission_for
from trainwright.embedded.options import ControllerName
from trainwright.embedded.plane import ControlPlane

WRITES = ("create", "update", "patch", "delete")
_OF_THE_PROCESS = ("leases", "selfsubjectaccessreviews")
"""What is written before there is anything to work on."""


@dataclass
class Door:
    """A proxy to an API server. `shut` gives, for a right that is asked for, the code to answer with instead, or 0 to hang."""

    url: str = ""
    asked: list[Permission] = field(default_factory=list)
    shut: Callable[[Permission | None, str], int | None] = lambda right, path: None
    denied: tuple[str, ...] = ()
    """Rights that an access review says are missing."""
    rbac: Rbac | None = None
    """If given, requests and access reviews are answered as RBAC does with these manifests, for `account`."""
    account: str = ""
    refused: list[str] = field(default_factory=list)
    """Requests that RBAC refused."""
    closing: threading.Event = field(default_factory=threading.Event)

    def allows(self, permission: Permission, name: str) -> bool:
        return self.rbac is None or self.rbac.allows(self.account, permission, name)

    def written(self) -> list[Permission]:
        return [right for right in self.asked if right.verb in WRITES and right.resource.partition(".")[0] not in _OF_THE_PROCESS]


@dataclass
class Running:
    """One controller process."""

    process: subprocess.Popen[bytes]
    log: Path
    door: Door

    def said(self) -> str:
        return self.log.read_text("utf-8")

    def page(self, path: str, of: str = "health") -> tuple[int, str]:
        (url,) = set(re.findall(rf"serving {of} at (http://\S+)", self.said()))
        answer = urllib3.PoolManager().request("GET", url + path, retries=False, timeout=5)
        return answer.status, answer.data.decode()

    def await_line(self, text: str, seconds: float = 30) -> str:
        return eventually(
            lambda: next((line for line in self.said().splitlines() if text in line), ""), seconds, f"{text!r} in\n{self.said()}"
        )

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def others_plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster with JobSet and Job controllers and a node, where nobody works on TrainJobs."""
    controllers = (ControllerName.jobset, ControllerName.job)
    with running_plane(tmp_path, controllers=controllers) as plane:
        yield plane


@pytest.fixture
def start(others_plane: ControlPlane, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts controllers with the options given; `shut` is their door's."""
    started: list[Running] = []
    doors: list[ThreadingHTTPServer] = []
    kubeconfig = yaml.safe_load((tmp_path / "home" / "kubeconfig").read_text())

    def begin(
        *options: str,
        shut: Callable[[Permission | None, str], int | None] | None = None,
        denied: tuple[str, ...] = (),
        rbac: Rbac | None = None,
        account: str = "",
        command: tuple[str, ...] = ("controller", "--metrics-port", "0", "--health-port", "0"),
    ) -> Running:
        door = Door(denied=denied, rbac=rbac, account=account)
        if shut is not None:
            door.shut = shut
        doors.append(_opened(door, kubeconfig["clusters"][0]["cluster"]))
        own = json.loads(json.dumps(kubeconfig))
        own["clusters"][0]["cluster"] = {"server": door.url}
        path = tmp_path / f"kubeconfig-{len(doors)}"
        path.write_text(yaml.safe_dump(own))
        log = tmp_path / f"controller-{len(doors)}.log"
        words = [sys.executable, "-m", "trainwright.cli", *command, "--kubeconfig", str(path), *options]
        with log.open("wb") as out:
            process = subprocess.Popen(words, stdout=out, stderr=out, env={**os.environ, "NO_PROXY": "127.0.0.1"})
        started.append(running := Running(process, log, door))
        return running

    yield begin
    for running in started:
        running.door.closing.set()
        running.process.kill()
        running.process.wait()
    for server in doors:
        server.shutdown()
        server.server_close()


def create(plane: ControlPlane, name: str, script: str = "true", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    return plane.cluster.create(trainjob(name, script=script, nodes=1, namespace=namespace, **spec))


def find_jobset(plane: ControlPlane, name: str, namespace: str = "default") -> dict[str, Any] | None:
    try:
        return plane.cluster.get(JOBSET, name, namespace)
    except NotFound:
        return None


def jobset_of_somebody(name: str) -> dict[str, Any]:
    pod_spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "command": ["true"]}]}
    return jobset(name, replicated_job(pod_spec=pod_spec))


def _asked_for(review: dict) -> str:
    """As `Permission` writes it, without the namespace."""
    asked = review["spec"]["resourceAttributes"]
    group, sub = asked.get("group", ""), asked.get("subresource", "")
    return f"{asked['verb']} {asked['resource']}" + (f".{group}" if group else "") + (f"/{sub}" if sub else "")


def reviewed(review: dict) -> tuple[Permission, str]:
    """What an access review asks for, and the name if it is about one object."""
    attributes = review["spec"]["resourceAttributes"]
    group, sub = attributes.get("group", ""), attributes.get("subresource", "")
    resource = attributes["resource"] + (f".{group}" if group else "") + (f"/{sub}" if sub else "")
    return Permission(attributes["verb"], resource, attributes.get("namespace", "")), attributes.get("name", "")


def _name_in(path: str, query: list[tuple[str, str]]) -> str:
    """The name that RBAC compares with resourceNames: of the object, or of the one that a list is narrowed to."""
    match = _PATH.fullmatch(path)
    selected = dict(query).get("fieldSelector", "")
    return (match and match["name"]) or (selected.removeprefix("metadata.name=") if selected.startswith("metadata.name=") else "")


def _opened(door: Door, cluster: dict) -> ThreadingHTTPServer:
    target, authority = cluster["server"], base64.b64decode(cluster["certificate-authority-data"]).decode()
    pool = urllib3.PoolManager(ca_cert_data=authority, maxsize=32)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            parts = urlsplit(self.path)
            right = permission_for(self.command, parts.path, parse_qsl(parts.query))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if right is not None:
                door.asked.append(right)
                name = _name_in(parts.path, parse_qsl(parts.query))
                if not parts.path.endswith("/selfsubjectaccessreviews") and not door.allows(right, name):
                    door.refused.append(f"{right} {name}")
                    self.send(403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": f"no rule: {right} {name}"})
                    return
            code = door.shut(right, parts.path)
            if code == 0:
                door.closing.wait()
                self.close_connection = True
                return
            is_review = parts.path.endswith("/selfsubjectaccessreviews")
            if is_review and (_asked_for(json.loads(body)) in door.denied or not door.allows(*reviewed(json.loads(body)))):
                self.send(201, {**json.loads(body), "status": {"allowed": False}})
                return
            if code is not None:
                self.send(code, {"kind": "Status", "code": code, "reason": "", "message": "the door is shut"})
                return
            self.forward(body)

        def forward(self, body: bytes) -> None:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "content-length")}
            headers["Connection"] = "close"  # none is left open when the server is to end
            there = pool.request(
                self.command,
                target + self.path,
                body=body or None,
                headers=headers,
                preload_content=False,
                retries=False,
                timeout=None,
            )
            self.send_response(there.status)
            self.send_header("Content-Type", there.headers.get("Content-Type", "application/json"))
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                while chunk := there.read1():
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                self.wfile.write(b"0\r\n\r\n")
            except (OSError, urllib3.exceptions.HTTPError):  # either side has gone
                self.close_connection = True
            finally:
                there.close()

        def send(self, code: int, answer: dict) -> None:
            text = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            pass

    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.answer)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a controller that was killed

    server = Server(("127.0.0.1", 0), Handler)
    door.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server
