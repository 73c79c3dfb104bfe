"""What is seen of the machine while a run is on it: telemetry, thermal and power state, host facts."""
