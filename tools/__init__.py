"""Programs that measure and picture the service for the documentation: `make figures`, `make screenshots`."""
