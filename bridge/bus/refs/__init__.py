"""What each ref of a bus means: requests, claims, logs, beacons, the bus record; listed, read, written, collected."""
