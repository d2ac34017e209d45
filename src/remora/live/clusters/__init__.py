"""Which virtual cluster a process, thread or coroutine is in, and how one is entered and left."""
