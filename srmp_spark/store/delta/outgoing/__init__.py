"""Publish the outgoing queues, dead letters and journal copies as Delta tables."""
