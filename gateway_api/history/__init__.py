"""The history: recorders of sessions, failed sign-ons and traffic, and searches in the records."""
