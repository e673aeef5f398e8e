"""Accept the stages of a sink, and judge their bytes and rows before anything is committed."""
