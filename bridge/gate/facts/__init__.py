"""What several rules and claims derive from the evidence; nothing here is a finding of its own."""
