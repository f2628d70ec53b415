"""Views of the API, with one module for each resource."""
