"""What is declared: premises and what claims need of them, and kinds of report."""
