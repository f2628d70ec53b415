"""Schemas of marshmallow for the queries and bodies of requests."""
