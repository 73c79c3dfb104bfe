"""What a requester's commands cost."""
