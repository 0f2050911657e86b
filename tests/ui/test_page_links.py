"""Tests one-time links: valid once, for a limited time, and only with the key of the server."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.manual_clock import ManualClock

from trainwright.ui.links import LINK_SECONDS, LinkRefused, Links, make_code, new_key
from trainwright.ui.private_file import write_private


def test_code_is_accepted_once() -> None:
    links = Links(new_key())
    code = links.make()
    links.redeem(code)
    with pytest.raises(LinkRefused, match="used before"):
        links.redeem(code)


def test_code_of_another_process_with_the_key_is_accepted() -> None:
    key = new_key()
    Links(key).redeem(make_code(key))


def test_code_of_another_key_is_refused() -> None:
    with pytest.raises(LinkRefused, match="not valid"):
        Links(new_key()).redeem(make_code(new_key()))


def test_expired_code_is_refused() -> None:
    clock = ManualClock(1_000_000.0)
    links = Links(new_key(), clock=clock)
    code = links.make()
    clock.now += LINK_SECONDS + 1
    with pytest.raises(LinkRefused, match="expired"):
        links.redeem(code)


def test_used_codes_are_forgotten_only_after_they_expire() -> None:
    clock = ManualClock(1_000_000.0)
    links = Links(new_key(), clock=clock)
    first = links.make()
    links.redeem(first)
    clock.now += LINK_SECONDS - 1
    links.redeem(links.make())
    with pytest.raises(LinkRefused, match="used before"):
        links.redeem(first)


def test_changed_expiry_is_refused() -> None:
    key = new_key()
    code = make_code(key)
    with pytest.raises(LinkRefused):
        Links(key).redeem(("B" if code[0] == "A" else "A") + code[1:])


@given(st.text(max_size=300))
def test_any_text_is_refused_without_another_error_property(text: str) -> None:
    with pytest.raises(LinkRefused):
        Links(b"k" * 32).redeem(text)


def test_key_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "page.key"
    write_private(path, b"one")
    write_private(path, b"two")
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
