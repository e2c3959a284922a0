"""The lens: `trace` records attention as it runs, `measure` turns it into numbers, `show` draws it."""
