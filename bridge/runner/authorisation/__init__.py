"""Who may ask and whose code may run: the host's lists, applied to one request."""
