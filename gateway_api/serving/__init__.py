"""gunicorn: its configuration for either profile, and our worker."""
