"""One claimed run on its host: from claim to delivery."""
