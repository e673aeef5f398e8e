"""Read the stages of a sink in processes of their own, because their bytes are not trusted."""
