"""Configuration of the core: documents, rules, storage and workflow."""
