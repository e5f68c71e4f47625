"""Services to balance, from the configuration file or from the store, resolved to addresses."""
