"""stack: what one file names, made so."""
