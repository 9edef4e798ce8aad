"""The base of all other rooms of the plugin.

settings      a job's settings, each with its help text
containment   keeps our exceptions from the job; prints lines for people
event_log     the interface by which the parts of a job record events
dtypes        the numbers of TensorFlow's dtypes; op_names: names of its operators on variables; edges: what a NodeDef reads
wrapping      wraps methods of TensorFlow's classes
gpus          the GPUs of this machine; memory_watch: resident memory; descendants: a process's children
"""
