"""Looking at runs and at what the bus offers: nothing here changes the bus."""
