"""The component `pull_dvc_data`."""

from trainwright.components.pull_dvc_data.component import pull_dvc_data

__all__ = ["pull_dvc_data"]
