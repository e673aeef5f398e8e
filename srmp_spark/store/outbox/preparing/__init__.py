"""Prepare a batch of stages for its commit: scan, identities, order, packing."""
