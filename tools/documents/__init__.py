"""Files that come from the code: man pages, and pages of the reference as MyST Markdown."""
