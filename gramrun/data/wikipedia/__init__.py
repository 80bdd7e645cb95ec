"""A wiki's dump, of any year and format → the page graph with titles and categories → a `Corpus`.

dump_files, dump_download                  dumps: found, fetched and verified
enwik8                                     the first 10^8 bytes of 2006
compressed, sql_dump, xml_dump             text of dumps → rows of tables, pages
titles, wikitext                           MediaWiki's rules for titles, links and categories
sql_wiki, xml_wiki                         both formats as the tables of `records`
lookups, pages, graph                      numbers and titles to rows, redirects, links, categories
title_ngrams, features                     rare pages dropped; n-grams and categories as features
"""
