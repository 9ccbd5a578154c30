"""Convert other tools' files to easyconfigs: files are read, never run."""
