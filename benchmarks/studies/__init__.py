"""What takes too long for every change: studies, each a list of cases that are measured one at a time and kept."""
