"""Tables over HTTP: tools of the tables service under addresses of their own, and proposals to show, apply, dismiss."""
