"""The embedded cluster: an API server, the controllers and a node that runs pods as local processes."""
