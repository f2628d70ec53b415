"""`make run`: a gateway API with a certificate, users and live subscribers, for the taking."""
