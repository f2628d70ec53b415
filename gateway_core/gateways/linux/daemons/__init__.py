"""The daemons beside the core: the files that they run by, and what a commit does to each."""
