"""The one reconcile loop: read `place`, then `loop`; the others support it."""

from holdfast.runtime.reconciler.loop import Reconciler

__all__ = ["Reconciler"]
