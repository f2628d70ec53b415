"""The worker of gunicorn, and gunicorn's configuration for either profile."""
