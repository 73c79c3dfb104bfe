"""The runner beside GitHub Actions: the job hook, the workflow file it accepts, what is announced."""
