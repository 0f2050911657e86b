"""The command line `trainwright`, with one module for each group of commands. `app` is the Typer application."""

from trainwright.cli.app import app

__all__ = ["app"]
