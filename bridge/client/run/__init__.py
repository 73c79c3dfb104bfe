"""One run as its requester sees it: state, progress, result, outcome."""
