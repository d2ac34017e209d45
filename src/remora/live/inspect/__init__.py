"""What a process is shown of its cluster: Ray's own functions, narrowed to the virtual cluster that it is in."""
