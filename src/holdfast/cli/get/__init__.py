"""`holdfast get`: `command` chooses by kind between the inventory, `servers`, and what the daemons here know
(`running`: workers, gates, intents, peers)."""
