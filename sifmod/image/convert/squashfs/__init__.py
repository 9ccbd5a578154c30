"""Squashfs 4.0: write with compression in threads, and read without mounting."""
