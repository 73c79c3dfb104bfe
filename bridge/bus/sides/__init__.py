"""The protocol of the bus over a store of refs, by the side that calls it."""
