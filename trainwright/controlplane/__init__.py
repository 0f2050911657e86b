"""The emulator of a cluster: an API server, the controllers of Kubernetes and JobSet, and a node that runs pods as local processes."""
