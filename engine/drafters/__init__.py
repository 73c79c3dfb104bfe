"""What proposes tokens: rules and settings here, tensors in the backends."""
