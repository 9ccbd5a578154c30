"""Squashfs 4.0: written with compression in threads, and read without mounting."""
