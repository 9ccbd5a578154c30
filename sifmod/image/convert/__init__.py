"""An OCI image to a SIF: layers merged, a squashfs written, metadata added."""
