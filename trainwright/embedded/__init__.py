"""The embedded cluster, put together: API server, controllers, node, Trainer and the page in one process, and its life."""
