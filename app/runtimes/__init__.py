"""What can run a pod's containers: one module per runtime behind the protocol in `base`."""
