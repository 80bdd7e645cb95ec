"""A wiki's dump, of any year and format → the page graph with titles and categories → a `Corpus`.

fetch, files, dump_status                  the tables: found, fetched and verified
enwik8                                     the first 10^8 bytes of 2006
sql_wiki, xml_wiki                         tables, or wikitext, as the plain records of `records`
pages, title_index, graph                  numbers and titles to rows, redirects, links, categories
title_words, corpus                        what is rare left out, titles and categories as features
synthetic, synthetic_titles                wikis of any size, drawn from a known model
"""
