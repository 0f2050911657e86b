"""Runs and models on the page: the workspaces, the folders of exports, the aliases, and the history of trainings."""
