"""Rules that concern several kinds of report, by subject; a kind's own lie beside its schema."""
