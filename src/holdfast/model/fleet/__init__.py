"""Reports of the fleet's daemons, and observed state."""
