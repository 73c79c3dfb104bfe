"""`kakeya-runner`: what the owner of a machine types."""
