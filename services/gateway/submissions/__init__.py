"""Accept a request for a run: check it, take its images in, count it, write it."""
