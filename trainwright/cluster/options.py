"""Options of the methods of `Cluster`; implementations and wrappers take them as `**options: Unpack[...]`."""

from __future__ import annotations

from typing import Literal, Required, TypedDict

from trainwright.cluster.warning_headers import OnWarning

PatchType = Literal["merge", "json", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]
FieldValidation = Literal["Strict", "Warn", "Ignore"]


class ListOptions(TypedDict, total=False):
    """Label and field selectors in kubectl's text form; empty selects all."""

    label_selector: str
    field_selector: str


class WatchOptions(ListOptions, total=False):
    """`timeout_seconds` is how long the server keeps the connection open; defaults to 300."""

    resource_version: Required[str]
    timeout_seconds: int


class CreateOptions(TypedDict, total=False):
    """With `dry_run` the server only returns what it would store. `field_validation` is what it does with unknown and duplicate
    fields: reject the object, drop them with a warning (its default), or drop them. `on_warning` receives its warnings, one by one.
    """

    dry_run: bool
    field_validation: FieldValidation
    on_warning: OnWarning | None


class PatchOptions(TypedDict, total=False):
    """`patch_type` defaults to merge, `field_manager` to trainwright; `force` is for apply: takes over fields of other managers."""

    patch_type: PatchType
    subresource: str | None
    field_manager: str
    force: bool


class DeleteOptions(TypedDict, total=False):
    """`propagation` defaults to Background; `uid` and `resource_version` are preconditions."""

    propagation: Propagation
    uid: str | None
    resource_version: str | None
    grace_period_seconds: int | None


class LogOptions(TypedDict, total=False):
    """`since_time` is an RFC 3339 time, of which kubelets honour whole seconds; `timestamps` prefixes each line with its time and
    a space; `previous` reads the log before the last restart of the container. After `idle_seconds` without a line, a followed log
    may end, so that its reader can stop or follow it again.
    """

    container: str | None
    follow: bool
    tail_lines: int | None
    limit_bytes: int | None
    since_time: str
    timestamps: bool
    previous: bool
    idle_seconds: float
