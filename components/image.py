"""The image that components run in on a cluster: it holds Trainwright and kfp. Fixed when a pipeline is compiled."""

from trainwright.runtimes.image import image

IMAGE = image()
"""TRAINWRIGHT_IMAGE, else the default; the bundled runtimes take the same one."""
