"""The lists of interfaces, VLANs and routes."""
