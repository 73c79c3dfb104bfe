"""What the runner writes down durably: journal, attempts, admitted requests, kept results, attestations."""
