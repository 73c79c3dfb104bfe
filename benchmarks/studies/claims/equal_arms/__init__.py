"""A model against its copy, launch after launch under the real supervisor: whatever it shows is noise."""
