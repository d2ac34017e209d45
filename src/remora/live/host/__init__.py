"""The controller as a Ray actor: it hears calls as bytes and hands them to the engine."""
