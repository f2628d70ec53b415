"""Requests and their parameters, as schemas of marshmallow."""
