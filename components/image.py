"""The image of the components on a cluster, which contains Trainwright and kfp. Set when a pipeline is compiled."""

from trainwright.runtimes.image import image

IMAGE = image("launcher")
"""TRAINWRIGHT_IMAGE, else the default. The bundled runtimes use the same setting."""
