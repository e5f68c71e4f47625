"""Sections: the settings, one file per section."""
