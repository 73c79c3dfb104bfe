"""`kakeya-mac`: what a requester and a reader of results type."""
