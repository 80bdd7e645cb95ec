"""A wiki's dump, of any year and format → the page graph with titles and categories → a `Corpus`."""
