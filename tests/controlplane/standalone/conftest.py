"""Controllers as processes of their own."""

from controller_doors import others_plane, start  # noqa: F401  fixtures
