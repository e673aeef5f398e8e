"""Public test kit: fake peers, dialogue tests, simulated network, disk and clock, and the oracle."""
