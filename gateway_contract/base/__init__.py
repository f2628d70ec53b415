"""What every program stands on: errors, settings, log lines, files, and the formats of values."""
