"""Studies of real models that `kakeya-engine models add` made."""
