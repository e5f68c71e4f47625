"""The one reconcile loop: read `place` (what a place provides), then `loop`; the other modules support it."""

from holdfast.runtime.reconciler.loop import Reconciler

__all__ = ["Reconciler"]
