"""The bus as one runner uses it: one lock, one push budget, one pace."""
