"""Where refs and objects lie: compare-and-swap on a git remote, routes, the push budget."""
