"""Try some hundred ways out of the sandbox, as each kind of run there is, and look from outside at what came of it."""
