"""What staff write: easyconfigs and site files, drafted, imported, checked."""
