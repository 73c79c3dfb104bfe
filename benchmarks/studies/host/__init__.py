"""What a host's owner goes through on a machine that has nothing yet."""
