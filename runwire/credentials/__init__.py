"""The users of NATS: their passwords, the accounts file of nats-server, and credential files and how they are found."""
