"""One model of a run: its states, its outcomes, its lease. Knows neither client nor runner."""
