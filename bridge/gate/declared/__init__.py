"""What is declared: premises and what claims need of them, kinds of report, and the shapes of their fields."""
