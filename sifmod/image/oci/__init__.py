"""OCI images: registries, layouts, archives, manifests."""
