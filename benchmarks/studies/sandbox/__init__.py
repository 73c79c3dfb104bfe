"""Programs that try to leave their sandbox, or take more than their bounds."""
