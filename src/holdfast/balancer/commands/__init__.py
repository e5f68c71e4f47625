"""Control-socket commands of the balancer: `control` takes requests, the others build the answers."""
