"""`holdfast status`: running daemons, their health, problems that need an operator."""
