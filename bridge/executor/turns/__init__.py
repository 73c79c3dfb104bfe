"""Hand out the turns of a launch, read who worked meanwhile, and launch again until the stop rule says so."""
