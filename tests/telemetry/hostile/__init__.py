"""Attacks on the fleet's side: what one tenant, an operator's slip or bad luck may do, and what must be unharmed after it.

test_table        each request of a hostile client, the answer, and what must be unharmed, on both databases
test_writers      writers beside prune, freeze and delete; two tenants with one run id
test_weeks        what late, misdated and unreadable rows do to weekly figures
test_sockets      bytes and connections: half heads, idle bodies, bombs, and the server's memory at the worst of all at once
test_operator     the commands of an operator's day
test_counting     docs/counting.md, worked out by SQL alone
test_machine      all of it in any order, beside a model that is a dictionary
"""
