"""Options, tables, completion and checks that the commands share."""
