"""Parts of the lab fleet, one module each; `fleet` puts them together."""
