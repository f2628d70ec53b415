"""The history of sessions: what the API keeps of each session, and how to find it again."""
