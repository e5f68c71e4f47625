"""The balancer: probes backends and keeps the dataplane's VIPs in step with them."""
