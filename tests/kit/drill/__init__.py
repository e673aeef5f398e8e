"""The drill of a lost disk: ``make drill``."""
