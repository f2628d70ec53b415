"""Scripts for the virtual machine. Each prints one JSON document: what it saw. Tests then look at it."""
