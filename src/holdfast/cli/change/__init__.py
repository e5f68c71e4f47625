"""Commands that change something: the inventory, backends, intents."""
