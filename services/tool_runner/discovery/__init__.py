"""Which tools there are: their announcements, the tools file, and the catalogue that says so."""
