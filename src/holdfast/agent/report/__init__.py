"""Reports of the agent to the fleet: liveness, a summary of itself, the status of its endpoints."""
