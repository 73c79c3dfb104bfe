"""Request branch -> claim -> job spec -> run -> verdict -> result tree, over any git remote."""
