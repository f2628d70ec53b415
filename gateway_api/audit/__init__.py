"""Who changed what, and who was refused: kept on disk, for good until there is too much of it."""
