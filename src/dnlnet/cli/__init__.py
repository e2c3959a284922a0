"""The `dnlnet` command: `commands` has one file per subcommand, `terminal` what they share."""
