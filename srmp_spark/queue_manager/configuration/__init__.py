"""Read and check the options of ``srmp-spark serve`` and the tables of its TOML file."""
