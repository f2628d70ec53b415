"""What every other package uses: errors, settings, log lines and values."""
