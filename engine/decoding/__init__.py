"""Draft -> verify -> accept -> crop -> emit: the loop, its oracle, its stops and its depth."""
