"""Accept a run: read and check its request, store its images, count it, write it. Also cancel a run, and raise its limits."""
