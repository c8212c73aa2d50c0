"""What is too large for one message: uploads in chunks, and artifact streams that are assembled from pieces."""
