"""`make bench`: what the service does in a second, beside its peers on the same machine."""
