"""Health probing: read `messages`, `schedule`, `probe`, `prober`, then the transports and `worker`."""
