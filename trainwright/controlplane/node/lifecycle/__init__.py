"""What a kubelet would do with a pod: pure functions from its spec, what is observed and the clock to its status and to actions."""
