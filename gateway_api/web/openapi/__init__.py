"""The OpenAPI document, made of the routes, their marks and their schemas."""
