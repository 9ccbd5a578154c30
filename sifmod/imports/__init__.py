"""Other tools' files to what an easyconfig can say of them: read, never run."""
