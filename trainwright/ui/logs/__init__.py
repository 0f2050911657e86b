"""Logs of containers on the page: read once into temporary files, from which any part is shown and searched at once."""
