"""What this machine knows: the user's repository, its configuration, the runs it sent and fetched."""
