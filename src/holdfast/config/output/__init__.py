"""Output: `config show` and the generated reference page."""
