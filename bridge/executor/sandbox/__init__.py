"""What confines a run: the choice, bubblewrap, sandbox-exec, and what they let it see."""
