"""Prefill in the bubbles on a virtual clock: the controller against training that does not go as planned."""
