"""What an agent's own program talks to, and what tells an agent how."""
