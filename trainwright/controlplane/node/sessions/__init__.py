"""Sessions of clients with containers: exec, attach, port-forward."""
