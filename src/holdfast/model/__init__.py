"""What exists: one file per kind, with its struct, key, codec and the columns people see. No IO."""
