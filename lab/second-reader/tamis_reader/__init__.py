"""A read-only reader of tamis database directories, by the format pages only."""
