"""What tests share: a real server, waiting for conditions, free ports."""
