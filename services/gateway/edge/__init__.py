"""What a request passes before its route, what all routes share, and the gateway's own pages: playground and API."""
