"""HTTP API of a daemon: read-only documents under `/api/v1`, with an OpenAPI document. `app` builds it."""
