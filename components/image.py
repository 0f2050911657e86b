"""The image that components run in on a cluster: it holds Trainwright and kfp. Fixed when a pipeline is compiled."""

import os

IMAGE = os.environ.get("TRAINWRIGHT_IMAGE", "ghcr.io/trainwright/trainwright:0.1.0-python3.11")
