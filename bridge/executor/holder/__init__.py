"""One small program a run that outlives its runner: the folder they share, the program, and how it is started."""
