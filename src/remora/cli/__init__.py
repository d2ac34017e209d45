"""The command line: parse, call, render. Nothing is decided here. May import everything below; typer and rich only here."""
