"""Record attention as it runs, in any network. Needs only torch."""
