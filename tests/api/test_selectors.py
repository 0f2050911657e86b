import pytest

from trainwright.api.errors import BadRequest
from trainwright.api.selectors.selection import field_selector, label_selector, match_labels

POD = {"metadata": {"name": "p", "labels": {"app": "x", "tier": "web"}}, "status": {"phase": "Running"}, "spec": {}}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("app=x", True),
        ("app==x,tier=web", True),
        ("app!=x", False),
        ("other!=x", True),
        ("app in (x, y),tier", True),
        ("app notin (x)", False),
        ("!app", False),
        ("!other", True),
        ("app=y", False),
    ],
)
def test_label_selectors(text: str, selected: bool) -> None:
    assert label_selector(text)(POD) is selected


@pytest.mark.parametrize("text", ["app=x=y", "a in x", "in (x)", "=x", "a b"])
def test_a_broken_label_selector_is_a_bad_request(text: str) -> None:
    with pytest.raises(BadRequest):
        label_selector(text)


def test_field_selectors() -> None:
    assert field_selector("metadata.name=p,status.phase!=Failed")(POD)
    assert field_selector("spec.nodeName=")(POD)
    assert not field_selector("metadata.name=q")(POD)
    with pytest.raises(BadRequest):
        field_selector("metadata.name")


def test_label_selector_objects() -> None:
    selector = {"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["web"]}]}
    assert match_labels(selector)(POD)
    assert not match_labels({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]})(POD)
