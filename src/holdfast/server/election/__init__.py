"""Leader election: `machine` decides, `elector` acts, `leadership` tells the other workers whether they may write."""
