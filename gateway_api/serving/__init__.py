"""The worker of gunicorn, and gunicorn's configuration for each profile."""
