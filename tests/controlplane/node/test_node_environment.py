"""What a process of a pod finds in its environment: references resolved as Kubernetes does, the user's login by its path."""

from __future__ import annotations

import base64
import contextlib
import os
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from factories import cluster_in_memory
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.kinds import NODE
from trainwright.controlplane.embedded import EmbeddedCluster
from trainwright.controlplane.node.container import POD_MARK
from trainwright.controlplane.node.environment import (
    VariableResolver,
    base_environment,
    proxies_with_credentials,
    thread_count,
)
from trainwright.controlplane.node.expansion import (
    MAX_TEXT,
    MAX_TEXTS,
    ArgumentsTooLong,
    expand_references,
    references_in,
)
from trainwright.controlplane.node.images import ImageEnvironment
from trainwright.controlplane.node.lifecycle.events import proxy_left_out
from trainwright.controlplane.node.volumes import ConfigError, MadeVolume

VARIABLES = {"A": "1", "B": "2", "a-b.c": "3", "": "nothing", "X Y": "4", "A$(B": "5", "LOOP": "$(A)"}
Obj = dict[str, Any]
POD: Obj = {"metadata": {"namespace": "default", "name": "p", "uid": "u"}, "spec": {"nodeName": "n"}}
DOUBLING = [{"name": "A0", "value": "x" * 64}, *({"name": f"A{n}", "value": f"$(A{n - 1})" * 2} for n in range(1, 41))]


def step_by_step(text: str, variables: dict[str, str]) -> str:
    """The loop of Kubernetes' expansion.Expand, with characters for bytes."""
    out, cursor = "", 0
    while cursor < len(text):
        if text[cursor] != "$" or cursor + 1 == len(text):
            out, cursor = out + text[cursor], cursor + 1
        elif text[cursor + 1] == "$":
            out, cursor = out + "$", cursor + 2
        elif text[cursor + 1] == "(" and ")" in text[cursor + 2 :]:
            end = text.index(")", cursor + 2)
            name = text[cursor + 2 : end]
            out, cursor = out + variables.get(name, f"$({name})"), end + 1
        else:
            out, cursor = out + text[cursor : cursor + 2], cursor + 2
    return out


@given(st.text(alphabet=st.sampled_from("$()AB \n"), max_size=14))
def test_property_expansion_is_that_of_kubernetes(text: str) -> None:
    assert expand_references(text, VARIABLES) == step_by_step(text, VARIABLES)


@given(st.text(alphabet=st.sampled_from("$()AB \n"), max_size=14))
def test_property_references_are_those_that_expansion_replaces(text: str) -> None:
    assert expand_references(text, dict.fromkeys(references_in(text), "")) == step_by_step(
        text, dict.fromkeys(references_in(text), "")
    )


@pytest.mark.parametrize("text", ["$(" * 700_000, "$(A" * 400_000 + ")", "$$(" * 400_000, "$" * 1_400_000, "x)" + "$(" * 700_000])
def test_references_are_found_in_linear_time(text: str) -> None:
    begun = time.process_time()
    references_in(text)
    with contextlib.suppress(ArgumentsTooLong):
        expand_references(text, {"A": "1"})
    assert time.process_time() - begun < 2


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from("ABC"), st.lists(st.sampled_from(["$(A)", "$(B)", "$(C)", "$$", "x" * 1000, "ü" * 999]), max_size=8)
    ),
    max_size=60,
)


def expanded(env: list[Obj]) -> dict[str, str]:
    return VariableResolver(cast("EmbeddedCluster", None), POD).own_variables({"env": env})  # of objects there is no question


@pytest.mark.medium
@given(ENTRIES)
def test_property_variables_take_what_a_program_can_be_given_at_most(entries: list[tuple[str, list[str]]]) -> None:
    """Also while they are expanded."""
    env = [{"name": name, "value": "".join(parts)} for name, parts in entries]
    tracemalloc.start()
    try:
        found = expanded(env)
        assert sum(len(f"{name}={value}".encode()) + 1 for name, value in found.items()) <= MAX_TEXTS
        assert all(len(f"{name}={value}".encode()) < MAX_TEXT for name, value in found.items())
    except ArgumentsTooLong:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 16_000_000


def test_variables_that_refer_to_each_other_are_refused_in_little_memory() -> None:
    with pytest.raises(ArgumentsTooLong, match="argument list too long: the variable A11 of more than 131072 bytes"):
        expanded(DOUBLING)
    many = [{"name": f"B{number}", "value": "$(A10)"} for number in range(40)]
    with pytest.raises(ArgumentsTooLong, match="argument list too long: all of more than 2097152 bytes"):
        expanded([*DOUBLING[:11], *many])


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home without any setting of Hugging Face."""
    for name in ("HF_HOME", "HF_TOKEN_PATH", "XDG_CACHE_HOME", "HF_TOKEN", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def environment(tmp_path: Path, **options: Any) -> dict[str, str]:
    pod = {
        "metadata": {"name": "p", "uid": "1"},
        "spec": options.pop("spec", {}),
        "status": {"podIP": options.pop("address", "")},
    }
    return base_environment(pod, options.pop("container", {}), tmp_path, tmp_path / "pod-home", **{"threads": 1, **options})


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize(
    "variables", [{}, {"HF_HOME": "hub"}, {"XDG_CACHE_HOME": "cache"}, {"HF_TOKEN_PATH": "login", "AWS_CONFIG_FILE": "aws"}]
)
def test_credentials_that_the_user_has_stored_are_not_found_from_a_pod(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], isolated: bool
) -> None:
    for name, place in variables.items():
        monkeypatch.setenv(name, str(user / place))
    for stored in (".cache/huggingface/token", "hub/token", "cache/huggingface/token", "login", ".aws/credentials", "aws"):
        (user / stored).parent.mkdir(parents=True, exist_ok=True)
        (user / stored).write_text("secret")
    found = environment(tmp_path, isolated=isolated)
    assert found["HOME"] == ("/root" if isolated else str(tmp_path / "pod-home"))
    assert not [name for name in found if name.startswith(("AWS_", "HF_HOME", "HF_TOKEN", "XDG_"))]


@pytest.mark.parametrize("isolated", [False, True])
def test_a_token_in_the_nodes_own_environment_is_not_passed_on(
    user: Path, monkeypatch: pytest.MonkeyPatch, isolated: bool
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert "HF_TOKEN" not in environment(user, isolated=isolated)


@pytest.mark.parametrize("isolated", [False, True])
def test_a_proxy_with_credentials_is_the_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolated: bool) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy:3128")
    monkeypatch.setenv("all_proxy", "me:secret@proxy:3128")
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    found = environment(tmp_path, isolated=isolated)
    assert {name for name in found if name.lower().endswith("_proxy")} == {"http_proxy"}
    assert proxies_with_credentials() == ["HTTPS_PROXY", "all_proxy"]
    assert "HTTPS_PROXY, all_proxy of the node has credentials" in proxy_left_out(proxies_with_credentials()).message


INHERITED = {
    "LANG": "C.UTF-8",
    "LC_ALL": "C",
    "https_proxy": "http://proxy",
    "SSL_CERT_FILE": "/ca",
    "HF_HUB_OFFLINE": "1",
    "LD_LIBRARY_PATH": "/cuda",
}
OF_THE_USER = {"USER": "me", "LOGNAME": "me", "SHELL": "/bin/zsh", "TZ": "Mars"}


def test_an_isolated_process_has_what_an_image_would_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in {**INHERITED, **OF_THE_USER, "PATH": "/opt/host", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)
    found = environment(tmp_path, isolated=True, port=1234, address="127.3.2.1")
    interfaces = {f"{name}_SOCKET_IFNAME": "lo" if sys.platform != "darwin" else "lo0" for name in ("GLOO", "NCCL", "TP")}
    assert found == INHERITED | interfaces | {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "HOSTNAME": "p",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "JAX_COORDINATOR_BIND_ADDRESS": "127.3.2.1:1234",
        "TRAINWRIGHT_RENDEZVOUS_PORT": "1234",
        POD_MARK: "1",
    }
    shared = environment(tmp_path)
    assert shared.items() >= {**INHERITED, **OF_THE_USER, "TMPDIR": str(tmp_path)}.items()
    assert shared["PATH"] == f"{Path(sys.executable).parent}:/opt/host"
    assert "AWS_SECRET_ACCESS_KEY" not in shared


def test_an_images_environment_comes_first_and_its_variables_win(tmp_path: Path) -> None:
    image = ImageEnvironment("*", Path("/opt/env"), env={"LANG": "xx", "OMP_NUM_THREADS": "7", "HOSTNAME": "no", POD_MARK: "no"})
    found = environment(tmp_path, image=image)
    assert found["PATH"].startswith("/opt/env/bin:")
    assert str(Path(sys.executable).parent) not in found["PATH"].split(":")[:1]
    assert (found["LANG"], found["OMP_NUM_THREADS"], found["HOSTNAME"], found[POD_MARK]) == ("xx", "7", "p", "1")


@pytest.mark.parametrize(
    ("resources", "share", "threads"),
    [
        ({}, 3, 3),
        ({}, 0, 1),
        ({}, 99, 8),
        ({"requests": {"cpu": "2"}}, 5, 2),
        ({"requests": {"cpu": "2"}, "limits": {"cpu": "3500m"}}, 5, 4),
        ({"limits": {"cpu": "250m"}}, 5, 1),
        ({"limits": {"cpu": "64"}}, 5, 8),
        ({"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}}, 5, 1),
        ({"requests": {"cpu": "0"}}, 5, 1),
    ],
)
def test_threads(resources: Obj, share: int, threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert thread_count({"resources": resources}, share) == threads
    assert environment(tmp_path, container={"resources": resources}, threads=share)["OMP_NUM_THREADS"] == str(threads)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    secret = {"A": base64.b64encode(b"secret").decode(), "raw": base64.b64encode(b"\xff").decode(), "nul": "AAA="}
    metadata = {"namespace": "default"}
    objects = (
        {
            "kind": "ConfigMap",
            "metadata": {"name": "c", **metadata},
            "data": {"A": "cm", "b.c": "dotted", "Z": "cm"},
            "binaryData": {"B": "Qg=="},
        },
        {"kind": "Secret", "metadata": {"name": "s", **metadata}, "data": secret},
        {"kind": "Node", "metadata": {"name": "n"}},
        {"kind": "Service", "metadata": {"name": "my-svc", **metadata}, "spec": {"ports": [{"port": 80, "name": "web"}]}},
    )
    with cluster_in_memory(*({"apiVersion": "v1", **each} for each in objects)) as cluster:
        cluster.patch(NODE, "n", {"status": {"allocatable": {"cpu": "3", "memory": "5Gi"}}}, subresource="status")
        yield cluster


def own(cluster: EmbeddedCluster, container: Obj, **spec: Any) -> dict[str, str]:
    return VariableResolver(cluster, {**POD, "spec": {**POD["spec"], **spec}}).own_variables(container)


def test_sources_in_the_order_of_the_spec(cluster: EmbeddedCluster) -> None:
    container = {
        "envFrom": [
            {"configMapRef": {"name": "c"}},
            {"secretRef": {"name": "s"}, "prefix": "S_"},
            {"prefix": "P.", "configMapRef": {"name": "c"}},
        ],
        "env": [
            {"name": "Z", "value": "own"},
            {"name": "R", "value": "$(Z) $(b.c) $(S_A) $(HOSTNAME) $(LATER)"},
            {"name": "LATER", "value": ""},
        ],
    }
    container["envFrom"][1:2] = [{"secretRef": {"name": "s", "optional": True}, "prefix": "S_"}]
    with pytest.raises(ConfigError, match="the variable S_nul contains a NUL byte"):
        own(cluster, container)
    container["envFrom"][1:2] = []
    assert own(cluster, container) == {
        "A": "cm",
        "b.c": "dotted",
        "P.A": "cm",
        "P.b.c": "dotted",
        "P.Z": "cm",
        "Z": "own",
        "R": "own dotted $(S_A) $(HOSTNAME) $(LATER)",
        "LATER": "",
    }


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "late"}}]}, 'configmap "late" not found'),
        ({"env": [{"configMapKeyRef": {"name": "c", "key": "B"}}]}, "couldn't find key B in ConfigMap default/c"),
        ({"env": [{"secretKeyRef": {"name": "s", "key": "gone"}}]}, "couldn't find key gone in Secret default/s"),
        ({"env": [{"fieldRef": {"fieldPath": "spec.x"}}]}, "unsupported fieldPath: spec.x"),
        ({"env": [{"resourceFieldRef": {"resource": "limits.x"}}]}, "unsupported container resource : limits.x"),
        ({"env": [{"resourceFieldRef": {"resource": "limits.cpu", "containerName": "no"}}]}, "container no not found"),
    ],
)
def test_missing_references_are_config_errors(container: Obj, message: str, cluster: EmbeddedCluster) -> None:
    if "env" in container:
        container = {"env": [{"name": "X", "valueFrom": container["env"][0]}]}
    with pytest.raises(ConfigError) as raised:
        own(cluster, container)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "source",
    [
        {"configMapKeyRef": {"name": "late", "key": "k"}},
        {"configMapKeyRef": {"name": "c", "key": "k"}},
        {"secretKeyRef": {"name": "s", "key": "k"}},
    ],
)
def test_missing_optional_references_are_left_out(source: Obj, cluster: EmbeddedCluster) -> None:
    source = {kind: {**reference, "optional": True} for kind, reference in source.items()}
    container = {"env": [{"name": "X", "valueFrom": source}], "envFrom": [{"configMapRef": {"name": "late", "optional": True}}]}
    assert own(cluster, container) == {}


def test_services(cluster: EmbeddedCluster) -> None:
    pod = {**POD, "spec": {"enableServiceLinks": True}}
    found = VariableResolver(cluster, pod, ("127.0.0.1", 6443)).own_variables(
        {"env": [{"name": "X", "value": "$(MY_SVC_SERVICE_PORT_WEB)"}]}
    )
    assert found["X"] == "80"
    assert (found["KUBERNETES_SERVICE_HOST"], found["KUBERNETES_SERVICE_PORT"]) == ("127.0.0.1", "6443")
    assert not [name for name in own(cluster, {}) if name.startswith(("MY_SVC", "KUBERNETES"))]
    (container,) = [{"env": [{"name": "KUBERNETES_SERVICE_HOST", "value": "own"}]}]
    assert VariableResolver(cluster, pod, ("h", 1)).own_variables(container)["KUBERNETES_SERVICE_HOST"] == "own"


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("A='1'\nB='2'\n", "B", "2"),
        ("A='1", "A", "invalid environment variable format starting at line 1: unclosed single quote"),
        ("A='1'", "B", 'environment variable key "B" not found in file "env" of volume "v"'),
    ],
)
def test_variables_from_files(text: str, key: str, value: str, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    (tmp_path / "env").write_text(text)
    resolver = VariableResolver(cluster, POD, volumes={"v": MadeVolume(tmp_path)})
    container = {"env": [{"name": "X", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "env", "key": key}}}]}
    try:
        found = resolver.own_variables(container)["X"]
    except ConfigError as error:
        found = str(error)
    assert found == value


def test_variables_from_files_that_are_not_there(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "secret").write_text("A='secret'")
    (tmp_path / "v/link").symlink_to("../secret")
    (tmp_path / "v/large").write_text("A='" + "x" * 2**17 + "'")
    resolver = VariableResolver(cluster, POD, volumes={"v": MadeVolume(tmp_path / "v")})

    def found(path: str, volume: str = "v", **more: Any) -> dict[str, str]:
        reference = {"volumeName": volume, "path": path, "key": "A", **more}
        return resolver.own_variables({"env": [{"name": "X", "valueFrom": {"fileKeyRef": reference}}]})

    assert found("none", optional=True) == {}
    for path, volume, message in (
        ("none", "v", "not found"),
        ("link", "v", "cannot be read"),
        ("large", "v", "more than"),
        ("x", "w", "cannot find"),
    ):
        with pytest.raises(ConfigError, match=message):
            found(path, volume)
