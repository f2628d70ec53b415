"""Sessions of the Linux gateway: polls of the sources, the table of sessions, and the store on disk."""
