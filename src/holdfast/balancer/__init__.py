"""The balancer: probes backends and reconciles the VIPs in the dataplane with their health."""

VIPS_WORKER = "vips"
"""Name of the worker that reconciles the VIPs. The announcer asks it for the state of the frontends."""
