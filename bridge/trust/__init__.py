"""Keys and signatures of both sides: ssh signatures, statements, attestations, claim chains, result verification."""
