"""HTTP API of a daemon: documents, events and changes under `/api/v1`, and the dashboard. `app` builds it."""
