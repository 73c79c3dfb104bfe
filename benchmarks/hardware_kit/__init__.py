"""One command for the owner of a real Mac or GPU box: what its sources say, how its hardware tests end."""
