"""`stitchfleet compile` and `stitchfleet explain`.

command       both commands, for the CPU
command_cuda  `compile --target cuda`
command_io    what they share: how a user's mistake is reported, where a result is written
"""
