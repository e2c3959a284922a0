"""The `dnlnet` command: one file per subcommand."""
