"""Session events on their way to the clients of one worker."""
