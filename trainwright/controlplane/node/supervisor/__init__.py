"""Parts of the supervisor of a container's process, `shim.py`. They import only the standard library and each other."""
