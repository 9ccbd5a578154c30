"""What an image says about itself, and what is in it, read without a runtime."""
