"""Tests of docker-compose.yml with real containers: `make compose`, where a Docker Engine and Compose are installed."""
