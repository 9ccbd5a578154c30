"""Convert an OCI image to a SIF: merge layers, write a squashfs, add metadata."""
