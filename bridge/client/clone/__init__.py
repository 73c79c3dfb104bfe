"""The state of this machine: the user's repository, its configuration, the runs it sent and fetched."""
