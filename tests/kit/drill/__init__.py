"""The drill of a lost disk, for ``make drill``."""
