"""The runner as a process: serve, once, embedded; recovery, beacons, an orderly stop."""
