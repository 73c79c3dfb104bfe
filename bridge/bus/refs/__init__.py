"""What each ref of a bus means: requests, claims, logs, beacons, cancels; listed, read, written, collected."""
