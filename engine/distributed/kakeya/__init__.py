"""The messages of the project's services, by version."""
