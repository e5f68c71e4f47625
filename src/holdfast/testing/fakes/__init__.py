"""In-memory fakes with faults on demand."""
