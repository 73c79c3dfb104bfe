"""Keys and signatures of both sides: ssh signatures, seals, attestations, claim chains, result verification."""
