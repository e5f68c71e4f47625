"""Loading: from YAML, environment and flags to values with their origin; `resolve` applies precedence."""
