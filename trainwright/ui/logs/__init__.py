"""Logs of containers on the page: the end of a log, what follows it, and the whole text as a download."""
