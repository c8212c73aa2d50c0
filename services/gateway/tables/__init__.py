"""Tables over HTTP: the tools of the tables service under addresses of their own."""
