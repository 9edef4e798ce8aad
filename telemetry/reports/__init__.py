"""A week's totals for people.

configuration  labels, cost centres and prices
fleet          totals by groups, with money and the weeks before
details        the details of one job
formats        the report as text, JSON or CSV
page           the report as HTML; charts: drawn by matplotlib; thinning: leaves out points that would not be visible
printable      makes text safe for a terminal, a page or a spreadsheet
document       the report in one format, made by a process of its own
"""
