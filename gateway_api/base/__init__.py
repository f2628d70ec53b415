"""What every other package stands on: errors, settings, log lines, and the values that all of them use."""
