"""Sets of sequences: which rows of a queue a consumer has received. Pure, and for every part of the package."""
