"""The model: one file per kind of object, with its struct, key, codec and displayed columns. No IO."""
