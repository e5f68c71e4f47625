"""Worker `api`: `worker` serves it, `documents` asks the daemons, `frontends` puts the balancers' answers together."""
