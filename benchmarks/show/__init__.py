"""What an issue promises to show, line by line: the figure, and the command that makes it again."""
