"""Accept a run: read and check its request, store its images, count it, write it. Or change a run that exists."""
