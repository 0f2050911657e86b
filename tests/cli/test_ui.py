"""Tests `trainwright ui` and the link that other commands print: what is opened, by whom, and what never appears where."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from support.waiting import eventually
from typer.testing import CliRunner

from trainwright.cli import app, page_server
from trainwright.cli.page_link import link_to, page_address, page_line, write_redirect
from trainwright.embedded.home import Home
from trainwright.embedded.lifecycle import start, stop
from trainwright.ui import static_files
from trainwright.ui.app import PageApp

pytestmark = pytest.mark.medium
OPENED = "open.html"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    made = Home(tmp_path_factory.mktemp("page") / "home")
    start(made, node=False)
    yield made
    stop(made)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser was started with."""
    addresses: list[str] = []
    monkeypatch.setattr(page_server.webbrowser, "open", lambda address: addresses.append(address) or True)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("TRAINWRIGHT_HOME", raising=False)
    return addresses


def redeemed(link: str) -> int:
    page, _, code = link.partition("#code=")
    return httpx.post(f"{page}api/session", json={"code": code}).status_code


@pytest.mark.parametrize("by", ["--home", "--kubeconfig", "KUBECONFIG"])
def test_page_of_the_embedded_cluster_is_opened(home: Home, opened: list[str], monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    if by == "KUBECONFIG":
        monkeypatch.setenv("KUBECONFIG", str(home.kubeconfig))
    words = {"--home": ["--home", str(home.path)], "--kubeconfig": ["--kubeconfig", str(home.kubeconfig)], "KUBECONFIG": []}[by]
    result = CliRunner().invoke(app, ["ui", *words])
    assert result.exit_code == 0, result.output
    running = home.running()
    assert running is not None
    assert result.stdout.strip() == running.page, "no terminal reads it"
    (address,) = opened
    assert "code" not in address
    page = Path(address.removeprefix("file://"))
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    link = page.read_text("utf-8").partition('href="')[2].partition('"')[0]
    assert link.startswith(f"{running.page}#code=")
    assert (redeemed(link), redeemed(link)) == (200, 401)


def test_up_and_ui_name_missing_scripts(home: Home, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_files, "has_vendored_files", lambda: False)
    up = CliRunner().invoke(app, ["up", "--home", str(home.path)])
    assert (up.exit_code, up.stdout.strip()) == (0, str(home.kubeconfig))
    assert up.stderr.splitlines()[-1] == f"warning: {static_files.MISSING}"
    shown = CliRunner().invoke(app, ["ui", "--home", str(home.path)])
    assert shown.exit_code != 0
    assert static_files.MISSING in " ".join(shown.stderr.split())
    assert opened == []


def test_link_of_each_command_is_another_one(home: Home, opened: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "is_terminal", lambda: True)
    links = {CliRunner().invoke(app, ["ui", "--home", str(home.path), "--no-open"]).stdout for _ in range(3)}
    assert len(links) == 3
    assert all("#code=" in link for link in links)
    assert opened == []


def test_pipe_gets_no_access_code(home: Home) -> None:
    command = [sys.executable, "-P", "-m", "trainwright.cli", "ui", "--home", str(home.path), "--no-open"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "code=" not in piped.stdout + piped.stderr
    assert piped.stdout.strip() == str(home.running().page)  # type: ignore[union-attr]  # it runs
    assert "on a terminal" in piped.stderr


def test_code_is_shown_on_terminals_only(home: Home) -> None:
    assert "#code=" in page_line(home, is_terminal=True)
    shown = page_line(home, is_terminal=False)
    assert "#code=" not in shown
    assert str(home.running().page) in shown  # type: ignore[union-attr]  # it runs


def test_api_server_leads_to_the_page(home: Home) -> None:
    running = home.running()
    assert running is not None
    answered = httpx.get(f"{running.url}/ui/", verify=ssl.create_default_context(cafile=home.authority))
    assert (answered.status_code, answered.headers["location"]) == (307, running.page)


def test_page_keeps_its_port_after_a_restart(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    first, _ = start(home, node=False)
    old = link_to(home)
    stop(home)
    assert link_to(home) == ""
    second, _ = start(home, node=False)
    try:
        assert first.page == second.page
        assert redeemed(old) == 401, "the key of links is another one"
    finally:
        stop(home)


def test_stopped_cluster_is_named_with_what_to_do(tmp_path: Path, opened: list[str]) -> None:
    result = CliRunner().invoke(app, ["ui", "--home", str(tmp_path / "home")])
    assert result.exit_code == 1
    assert "trainwright up" in result.output


def test_other_addresses_need_logins(opened: list[str]) -> None:
    result = CliRunner().invoke(app, ["ui", "--host", "0.0.0.0"])
    assert result.exit_code == 2
    assert "--token-login" in result.output


def test_other_cluster_is_served_until_it_is_stopped(
    home: Home, opened: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.touch(0o600)
    kubeconfig.write_bytes(home.kubeconfig.read_bytes())
    served: list[PageApp] = []
    serve = page_server.serve
    monkeypatch.setattr(
        page_server, "serve", lambda made, *given, **options: served.append(made) or serve(made, *given, **options)
    )
    monkeypatch.setattr(page_server, "_until_stopped", lambda: None)
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "notes"))
    words = [
        "ui",
        "--kubeconfig",
        str(kubeconfig),
        "--exports",
        str(tmp_path),
        "--workspace",
        str(tmp_path),
        "--airflow-url",
        "https://a",
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    page = served[0]._page
    assert page.exports == (f"file://{tmp_path}",)
    assert page.orchestrators == {"airflow": "https://a"}
    assert page.launches is not None
    assert "#code=" not in opened[0]


@pytest.mark.parametrize("words", [["--workspace", "/nothing"], ["--airflow-url", "javascript:alert(1)"]])
def test_wrong_options_are_refused(home: Home, opened: list[str], tmp_path: Path, words: list[str]) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_bytes(home.kubeconfig.read_bytes())
    result = CliRunner().invoke(app, ["ui", "--kubeconfig", str(kubeconfig), *words])
    assert result.exit_code == 2
    assert words[0] in result.output


def test_port_in_use_is_reported(home: Home, opened: list[str], tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_bytes(home.kubeconfig.read_bytes())
    running = home.running()
    assert running is not None
    port = running.page.rsplit(":", 1)[1].split("/")[0]
    result = CliRunner().invoke(app, ["ui", "--kubeconfig", str(kubeconfig), "--port", port])
    assert result.exit_code == 1
    assert "--port" in result.output


def test_page_ends_on_interrupt(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is served, others find its address, without a code."""
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "notes"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    running = home.running()
    assert running is not None
    kubeconfig = tmp_path / "config"
    kubeconfig.write_bytes(home.kubeconfig.read_bytes())
    command = [sys.executable, "-P", "-m", "trainwright.cli", "ui", "--kubeconfig", str(kubeconfig), "--no-open"]
    terminal, output = os.openpty()
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True)
    os.close(output)
    try:
        with open(terminal, encoding="utf-8") as screen:
            page, _, code = screen.readline().strip().partition("#code=")
        assert page_address(kubeconfig, lambda: running.url) == page
        token = httpx.post(f"{page}api/session", json={"code": code}).json()["session"]
        with httpx.stream("GET", f"{page}api/trainjobs/stream", headers={"Authorization": f"Bearer {token}"}) as stream:
            assert next(stream.iter_lines())
            process.send_signal(signal.SIGINT)
            eventually(lambda: process.poll() is not None, 15, "the page to end")
    finally:
        process.kill()
        _, errors = process.communicate()
    assert "Traceback" not in errors
    assert page_address(kubeconfig, lambda: running.url) == ""


def test_sessions_end_when_another_program_took_the_port(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    running, _ = start(home, node=False)
    try:
        page, _, code = link_to(home).partition("#code=")
        session = httpx.post(f"{page}api/session", json={"code": code}).json()["session"]
        stop(home)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", home.last_page_port()))
            taken.listen()
            result = CliRunner().invoke(app, ["up", "--home", str(home.path), "--no-node"])
            assert result.exit_code == 0, result.output
        assert f"another program listens on its port {urlsplit(page).port}" in result.stderr
        moved = home.running()
        assert moved is not None
        assert moved.page != running.page
        assert httpx.get(f"{moved.page}api/cluster", headers={"Authorization": f"Bearer {session}"}).status_code == 401
    finally:
        stop(home)


def test_idle_connections_make_room_for_others(home: Home, tmp_path: Path) -> None:
    """`trainwright ui` beside the cluster, with few file descriptors: as many connections as it has would stop it."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_bytes(home.kubeconfig.read_bytes())
    command = ["sh", "-c", 'ulimit -n 96 && exec "$@"', "sh", sys.executable, "-P", "-m", "trainwright.cli", "ui", "--no-open"]
    environment = {**os.environ, "TRAINWRIGHT_HOME": str(tmp_path / "notes")}
    process = subprocess.Popen([*command, "--kubeconfig", str(kubeconfig)], stdout=subprocess.PIPE, text=True, env=environment)
    idle: list[socket.socket] = []
    try:
        assert process.stdout is not None
        page = process.stdout.readline().strip()
        host, port = urlsplit(page).hostname, urlsplit(page).port
        for _ in range(100):
            idle.append(socket.create_connection((host, port), timeout=10))
        assert httpx.get(f"{page}api/config", timeout=10).status_code == 200
    finally:
        for each in idle:
            each.close()
        process.kill()
        process.communicate()


def test_redirect_replaces_an_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "page" / OPENED
    write_redirect(path, "http://one")
    write_redirect(path, "http://two")
    assert "http://two" in path.read_text("utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
