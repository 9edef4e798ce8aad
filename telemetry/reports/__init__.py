"""A week's totals for people.

configuration  labels, cost centres and prices
fleet          totals by groups, with money and the weeks before
details        what is known of one job
formats        the report as text, JSON or CSV
page           as HTML; charts (matplotlib) draws, thinning leaves out points that nobody would see
printable      text that a terminal, a page or a spreadsheet can be given
document       the report in one format, made by a process of its own
"""
