"""What this host is: interpreter, packages, engine sources, model folders."""
