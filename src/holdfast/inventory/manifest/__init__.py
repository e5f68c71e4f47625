"""Manifests: files of desired objects, read and written."""
