"""Images without a container runtime: which environment of this machine runs an image, and which names no registry would take."""

from trainwright.controlplane.node.images.catalogue import ImageCatalogue, ImageEnvironment, ImagesFileError
from trainwright.controlplane.node.images.references import default_pull_policy, image_name_error

__all__ = ["ImageCatalogue", "ImageEnvironment", "ImagesFileError", "default_pull_policy", "image_name_error"]
