"""Our own protocol: Server-Sent Events, one frame per event."""
