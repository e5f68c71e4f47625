"""Leader election: `machine` decides, `elector` acts, `leadership` tells who may write."""
