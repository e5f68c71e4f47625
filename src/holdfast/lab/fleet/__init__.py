"""Parts of the demo fleet, one module each. Read `layout` (files and names), `fleet` (the workers), then the parts."""
